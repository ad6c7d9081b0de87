"""``headrace sources``: ``command`` has the parser, ``records`` reads the newest records of topics."""
