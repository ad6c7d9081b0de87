"""How the answer of a view is kept up to date: which way is chosen, why, and what an event costs."""
