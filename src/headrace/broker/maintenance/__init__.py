"""The periodic jobs of a broker, its log cleaner, and moves of partitions to other log dirs."""
