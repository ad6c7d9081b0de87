"""Chooses how the answer of a view is kept up to date, and says why, and what an event costs."""
