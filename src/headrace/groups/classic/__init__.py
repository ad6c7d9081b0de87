"""Groups of the classic protocol: the members assign partitions among themselves, and the coordinator gathers them."""
