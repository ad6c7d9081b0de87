"""The broker that runs without ZooKeeper: its own znode tree, its own controller, all partitions led here."""
