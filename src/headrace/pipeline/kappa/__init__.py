"""The Kappa architecture: each version is one Spark stream that maintains one table."""
