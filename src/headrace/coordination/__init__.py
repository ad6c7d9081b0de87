"""ZooKeeper's znode tree, which stores a cluster's topics, configs and ids under Kafka's own paths."""
