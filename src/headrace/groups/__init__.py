"""Consumer groups: their members, the assignment of partitions, and the committed offsets (``__consumer_offsets``)."""
