"""Looks at records and writes the file of a source. No Spark, no network."""
