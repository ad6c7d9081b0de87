"""Where views are kept and read: SQLite or PostgreSQL by URL. Knows nothing of Spark: Arrow tables in, rows out.

``database`` is one database with its transactions; ``sqlite_dialect`` and ``postgresql_dialect`` are what differs.
``tables`` makes data tables, ``columns`` and ``keys`` turn Arrow columns into what is stored, ``loading`` brings them
in and out. ``sql_views`` has the views that readers use, and how one is switched. ``catalog`` keeps which versions
exist (``version_states``), how far each has read and what is wanted of it. ``query`` answers SQL, read-only by
construction; ``http`` does so for other machines; ``plain`` is how answers look in JSON and CSV.

Arrow, psycopg and the HTTP server are imported only where they are used: ``headrace query`` starts without them.
"""
