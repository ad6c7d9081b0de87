"""Tests of views: records in, rows out. Reads the files in ``tests/``, runs them with Spark, and compares the rows."""
