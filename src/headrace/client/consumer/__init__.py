"""The consumer: reads records of topics, alone or as a member of a group.

The way of a record: ``fetcher`` sends Fetch requests ahead of the user, ``fetch_positions`` keeps the fetched batches
and the position of each partition, ``poll_buffer`` takes records out of the batches, and ``async_consumer`` or
``sync_consumer`` return them from ``poll()``. ``committer`` commits offsets, ``committed_offsets`` has the requests for
that. ``subscription`` connects the consumer with its membership in the group.
"""
