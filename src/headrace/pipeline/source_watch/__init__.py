"""Watches whether the records of sources still have the fields that the sources' schemas name."""
