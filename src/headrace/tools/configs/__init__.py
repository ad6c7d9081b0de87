"""``headrace configs``: ``command`` has the parser, ``entities`` what has settings, ``quotas`` limits of clients."""
