"""The group coordinator: finds the shard of ``__consumer_offsets`` that a group belongs to."""

from collections.abc import Callable

from headrace.groups.context import GroupContext
from headrace.groups.shard import GroupShard
from headrace.replication.coordinator import ShardedCoordinator


class GroupCoordinator(ShardedCoordinator[GroupShard]):
    def __init__(self, context: GroupContext, partition_count: Callable[[], int]) -> None:
        """``partition_count`` returns the number of partitions that ``__consumer_offsets`` has or will have."""
        super().__init__("groups", partition_count, lambda journal: GroupShard(context, journal))
        self.context = context

    def transaction_ended(self, partition_index: int, producer_id: int, committed: bool) -> None:
        """Completes the pending offsets of a transaction whose marker was appended to the partition.

        A shard that is still loading reads the marker from the log by itself.
        """
        shard = self._active.get(partition_index)
        if shard is not None:
            shard.offsets.complete(producer_id, committed=committed)
