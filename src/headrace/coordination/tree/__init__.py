"""The znode tree: ZooKeeper's data model, its watches, and its files on disk. No sockets and no event loop."""
