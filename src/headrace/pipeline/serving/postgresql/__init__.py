"""Runs the statements that only PostgreSQL has, COPY, and staging tables that Spark's tasks fill."""
