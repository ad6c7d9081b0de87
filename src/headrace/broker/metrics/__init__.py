"""The broker's metrics: counters, the table of families, their values, and the HTTP exporter."""
