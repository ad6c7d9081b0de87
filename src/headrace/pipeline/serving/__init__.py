"""The serving database, SQLite or PostgreSQL: stores views and answers queries. Does not import Spark.

``database`` is one database with its transactions; ``sqlite_dialect`` and ``postgresql_dialect`` have the differences.
``tables`` creates data tables, ``columns`` and ``keys`` convert Arrow columns to stored values, ``loading`` writes and
reads Arrow tables. ``sql_views`` creates and switches the views that readers use. ``catalog`` stores which versions
exist, their states (``version_states``) and how far each has read. ``query`` answers SQL and cannot change anything;
``http`` does so over HTTP; ``formats`` writes answers as JSON and CSV. ``large_answers`` writes answers of any size
into files (``spool``): as Arrow (``arrow_stream``, with ``arrow_postgresql`` and ``arrow_values``), CSV, or in pages.

Arrow, psycopg and the HTTP server are imported only where they are used: ``headrace query`` starts without them.
"""
