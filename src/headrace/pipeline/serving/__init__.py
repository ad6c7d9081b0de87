"""The serving database, SQLite or PostgreSQL: stores views and answers queries. Does not import Spark.

``database`` is one database with its transactions; ``sqlite`` and ``postgresql`` have the differences. ``tables``
creates data tables, ``columns`` and ``keys`` convert Arrow columns to stored values, ``loading`` writes and reads Arrow
tables. ``sql_views`` creates and switches the views that readers use. ``catalog`` stores which versions exist, their
states and how far each has read (``catalog_tables``). ``queries`` answers SQL and cannot change anything; ``http`` does
so over HTTP.

Arrow, psycopg and the HTTP server are imported only where they are used: ``headrace query`` starts without them.
"""
