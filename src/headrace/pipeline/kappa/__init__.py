"""The Kappa architecture: each version keeps one table up to date, by merging partial results or as a Spark stream."""
