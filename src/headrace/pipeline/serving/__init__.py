"""Where views are kept and read: SQLite or PostgreSQL by URL. Knows nothing of Spark: Arrow tables in, rows out.

``database`` is one database with its transactions; ``sqlite_dialect`` and ``postgresql_dialect`` are all that differs
between the two. ``tables`` makes data tables and the SQL view that readers use; ``columns`` and ``keys`` turn Arrow
columns into what is stored. ``catalog`` keeps which versions exist, how far each has read and what is wanted of it.
``query`` answers SQL, read-only by construction; ``http`` does so for other machines.
"""
