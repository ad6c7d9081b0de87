"""Counts what the broker does, and serves the counts to Prometheus."""
