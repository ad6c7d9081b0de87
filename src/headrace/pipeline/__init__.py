"""The pipeline: one query over the log, kept as a SQL table by Spark, by the Lambda or the Kappa architecture.

It sees the clients and the protocol, nothing of the broker. Spark is imported only where it is used: the catalog of
views and queries do without.
"""
