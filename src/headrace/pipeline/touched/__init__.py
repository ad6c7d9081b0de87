"""Maintains a view by touched keys: computes again only what a change of the input can have changed."""
