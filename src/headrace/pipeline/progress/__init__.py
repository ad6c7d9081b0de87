"""How far a view is in the log: points, lag, losses of the log, and progress lines."""
