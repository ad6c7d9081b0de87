"""The data source ``headrace``: reads topics into DataFrames, as batches and as streams."""
