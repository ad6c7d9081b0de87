"""``headrace console-consumer``: ``command`` has the parser, ``formatters`` print records."""
