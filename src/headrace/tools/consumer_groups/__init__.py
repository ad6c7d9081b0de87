"""``headrace consumer-groups``: ``command`` has the parser, beside it descriptions and offset resets."""
