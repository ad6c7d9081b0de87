"""``headrace configs``: ``command`` has the parser, ``entities`` the changes to each kind of entity."""
