"""``headrace get-offsets``: ``command`` has the parser, ``partition_rules`` select partitions."""
