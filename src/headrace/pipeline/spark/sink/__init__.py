"""The sink of the data source ``headrace``: writes the rows of DataFrames to topics."""
