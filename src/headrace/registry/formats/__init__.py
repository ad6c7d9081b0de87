"""Parses schemas: what a text means, how it is stored, and whether two texts are the same schema."""
