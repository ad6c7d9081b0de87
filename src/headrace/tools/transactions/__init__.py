"""``headrace transactions``: ``command`` has the parser, ``hanging`` finds hanging transactions."""
