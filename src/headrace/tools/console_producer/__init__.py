"""``headrace console-producer``: ``command`` has the parser, ``line_reader`` makes records of lines."""
