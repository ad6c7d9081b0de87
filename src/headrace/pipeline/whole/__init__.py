"""Keeps a view by computing its whole answer again, and swapping it in one transaction."""
