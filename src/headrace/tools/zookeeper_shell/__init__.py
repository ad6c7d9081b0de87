"""``headrace zookeeper-shell``: ``command`` has the parser, ``znode_commands`` the shell's commands."""
