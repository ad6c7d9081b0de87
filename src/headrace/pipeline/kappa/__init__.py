"""The Kappa architecture: one stream of Spark per version, which keeps one table."""
