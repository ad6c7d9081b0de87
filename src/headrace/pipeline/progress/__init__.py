"""Describes how far a view has read the log: offsets, ranges of offsets, lag, and data that the log has lost."""
