"""Decides which requests the console answers, and records the changes.

``hosts.py`` refuses requests under a name that is not the console's, ``headers.py`` adds the headers that browsers
enforce, ``sessions.py`` remembers visitors, ``origin.py`` checks that a change was asked by a page of the console,
``audit.py`` writes one line per change, and ``masking.py`` hides values of fields.
"""
