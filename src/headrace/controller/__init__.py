"""The controller: places and moves partitions, elects leaders, and deletes topics. Its state is stored in ZooKeeper."""
