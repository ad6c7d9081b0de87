"""``headrace query``: ``command`` has the parser and the output, ``watch`` the changes of ``--watch``."""
