"""Which shard a group belongs to, and whether it answers yet.

A group's name decides its partition of ``__consumer_offsets``; the leader of the partition coordinates the group. A
partition that we have come to lead is *loading* until its log was applied, then *active*; of others we know nothing.

Loading is an iterator, so that whoever has an event loop gives other requests their turn between two batches.
"""

from collections.abc import Callable, Iterator
from logging import getLogger

from headrace.groups.context import GroupContext
from headrace.groups.shard import GroupShard
from headrace.protocol.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from headrace.protocol.internal_records import partition_for
from headrace.replication.journal import Journal

logger = getLogger(__name__)


class GroupCoordinator:
    def __init__(self, context: GroupContext, partition_count: Callable[[], int]) -> None:
        """``partition_count`` is that of ``__consumer_offsets``, or what it will have."""
        self.context = context
        self._partition_count = partition_count
        self._active: dict[int, GroupShard] = {}
        self._loading: dict[int, GroupShard] = {}

    # -- which partitions are ours ----------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        return index in self._active or index in self._loading

    def load(self, journal: Journal) -> Iterator[int]:
        """We lead the partition now. Its groups are answered once the iterator has been run to its end."""
        assert not self.has(journal.index), f"partition {journal.index} is ours already"
        shard = self._loading[journal.index] = GroupShard(self.context, journal)
        return self._load(shard)

    def _load(self, shard: GroupShard) -> Iterator[int]:
        index = shard.index
        try:
            for count in shard.load():
                yield count
                if self._loading.get(index) is not shard:
                    return  # unloaded meanwhile
        except (KafkaError, OSError) as error:
            logger.error("the groups of partition %d cannot be loaded, and are not served: %s", index, error)
            self._loading.pop(index, None)
            return
        self._active[index] = self._loading.pop(index)

    def unload(self, index: int) -> None:
        """We do not lead the partition any more."""
        for shards in (self._active, self._loading):
            shard = shards.pop(index, None)
            if shard is not None:
                shard.close(NotCoordinator)

    # -- whose group is it ------------------------------------------------------------------------------------------

    def index_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count())

    def shard_for(self, group_id: str) -> GroupShard:
        """
        :raises CoordinatorLoadInProgress: if it will answer soon.
        :raises NotCoordinator: if another broker coordinates the group, or nobody does yet.
        """
        index = self.index_of(group_id)
        shard = self._active.get(index)
        if shard is not None:
            return shard
        if index in self._loading:
            raise CoordinatorLoadInProgress(f"the groups of partition {index} are being loaded")
        raise NotCoordinator(f"this broker does not coordinate the group {group_id!r}")

    def shards(self) -> list[GroupShard]:
        """Those that answer."""
        return list(self._active.values())

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def transaction_ended(self, partition_index: int, producer_id: int, committed: bool) -> None:
        """A marker was appended to the partition. One that is being loaded will come upon it by itself."""
        shard = self._active.get(partition_index)
        if shard is not None:
            shard.offsets.complete(producer_id, committed=committed)
