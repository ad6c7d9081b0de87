"""Holds what people do with a project, from the commands and from Python: apply, explain, follow and query it."""
