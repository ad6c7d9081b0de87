"""The consumer: ``async_consumer`` and ``sync_consumer``, positions, a fetcher that reads ahead, offsets."""
