"""``headrace reassign-partitions``: ``command`` has the parser, ``plan`` the decisions."""
