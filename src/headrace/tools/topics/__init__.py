"""``headrace topics``: ``command`` has the parser, ``descriptions`` the output of ``--describe``."""
