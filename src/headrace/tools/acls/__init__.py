"""``headrace acls``: lists, adds and removes ACLs."""
