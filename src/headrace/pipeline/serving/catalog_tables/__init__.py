"""The tables in which the catalog and the runner store what they know of versions."""
