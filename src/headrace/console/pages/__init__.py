"""Holds the pages: one module per page, and ``table.py``, the registry.

A page is a :class:`~headrace.console.pages.page.Page`: a path, a title, a coroutine ``read`` that returns a dataclass,
and a template that shows this dataclass as ``data``. The same dataclass is the JSON answer at ``/api`` plus the path.
"""
