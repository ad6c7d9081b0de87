"""The znode tree: where topics, configs and ids of a cluster live, under Kafka's own ZooKeeper paths."""
