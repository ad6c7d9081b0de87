"""Reads and follows znodes: many znodes at once, notifications of changes, and the followers of notifications."""
