"""Log compaction (``cleanup.policy=compact``): of each key, the last record stays. ``cleaner.py`` has the theory."""
