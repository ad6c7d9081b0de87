"""The registry of settings. ``table_*`` are its rows, ``keys`` and ``checks`` say what a row is.

``registry`` finds a row by its name. ``broker_config`` holds the values of one broker. ``topic``, ``group`` and
``resources`` are about the settings of single topics and groups, ``describe`` and ``alter`` about the APIs.
"""
