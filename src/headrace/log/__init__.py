"""Storage: partitions as folders of segments, in Apache Kafka's own file formats. No network, no event loop."""
