"""Who decides about the cluster: topics and where their partitions live. Its truth is the znode tree."""
