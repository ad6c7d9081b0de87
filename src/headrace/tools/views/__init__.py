"""``headrace views``: ``command`` has the parser, the other modules one subcommand or its display each."""
