"""Holds the parts that ``producer-perf-test`` and ``consumer-perf-test`` share."""
