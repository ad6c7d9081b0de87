"""Samples the cluster, so that pages can show rates and the last hours."""
