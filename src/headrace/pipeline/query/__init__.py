"""A view's query: its tables, its plan, and the algebra of partial results that combine."""
