"""``headrace dump-log``: ``command`` has the parser, the other modules read one kind of file each."""
