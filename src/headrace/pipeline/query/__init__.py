"""The query of a view: its tables, its plan, its checks, and the algebra that combines partial results."""
