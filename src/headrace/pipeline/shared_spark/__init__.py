"""Lets commands use the Spark of a running ``headrace views run``, so that they do not start a Spark of their own."""
