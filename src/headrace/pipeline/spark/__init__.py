"""Spark over the log: the data source ``headrace``, the session and its Java process, and Spark's query plans."""
