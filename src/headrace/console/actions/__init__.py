"""Holds the actions: one module per change, and ``table.py``, the registry.

An action is a :class:`~headrace.console.actions.action.Action`: a name, fields, ``command_line`` and ``run``. The
form is at ``/actions/NAME``. The first POST checks the fields and shows what will happen, with the command line that
does the same; the second POST runs. The JSON twin is ``POST /api/actions/NAME``, which runs at once.
"""
