"""A version of a view while it runs: the interface that the runner and both architectures share."""
