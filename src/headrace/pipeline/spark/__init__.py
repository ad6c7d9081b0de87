"""Spark over the log: the data source ``headrace``, the sink, the session and its Java process."""
