"""Coordination of groups: which shard of ``__consumer_offsets`` a group belongs to, and whether it answers yet."""

from collections.abc import Callable

from headrace.groups.context import GroupContext
from headrace.groups.shard import GroupShard
from headrace.replication.coordinator import ShardedCoordinator


class GroupCoordinator(ShardedCoordinator[GroupShard]):
    def __init__(self, context: GroupContext, partition_count: Callable[[], int]) -> None:
        """``partition_count`` is that of ``__consumer_offsets``, or what it will have."""
        super().__init__("groups", partition_count, lambda journal: GroupShard(context, journal))
        self.context = context

    def transaction_ended(self, partition_index: int, producer_id: int, committed: bool) -> None:
        """A marker was appended to the partition. One that is being loaded will come upon it by itself."""
        shard = self._active.get(partition_index)
        if shard is not None:
            shard.offsets.complete(producer_id, committed=committed)
