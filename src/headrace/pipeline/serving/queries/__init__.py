"""Answers the queries of readers: one statement in PostgreSQL or SQLite, which cannot change anything.

``query`` runs short statements and says up to which offsets the answer counts. ``formats`` writes answers as JSON and
CSV. ``large_answers`` writes answers of any size into files (``spool``): as Arrow (``arrow_stream``, with
``arrow_postgresql`` and ``arrow_values``), CSV, or in pages.
"""
