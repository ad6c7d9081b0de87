"""Serves the znode tree on ZooKeeper's wire protocol. Only ``tree_server.py`` uses sockets."""
