"""What a coordinator of groups and one of transactions have in common: shards, and when they answer.

A name (of a group, a transactional id) belongs to one partition of an internal topic, by its hash; the leader of that
partition coordinates it. All state that belongs to one partition is a shard. A partition that we have come to lead is
*loading* until its log was applied, then *active*; of others we know nothing.

A shard goes with the leader epoch of its partition: what was not committed when that ended is forgotten with the shard,
and whoever leads next loads it from what was. Where this broker leads on in the next epoch the shard stays.

Loading is an iterator, so that whoever has an event loop gives other requests their turn between two batches.
"""

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Generic, Protocol, TypeVar

from headrace.protocol.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from headrace.protocol.internal_records import partition_for
from headrace.replication.journal import Journal

logger = getLogger(__name__)


class Shard(Protocol):
    @property
    def index(self) -> int: ...

    def load(self) -> Iterator[int]:
        """Applies the log, a batch a step; each step gives how many records it had."""
        ...

    def unload(self) -> None:
        """Stops the shard: another broker coordinates its names from now on, or none."""
        ...


S = TypeVar("S", bound=Shard)


class ShardedCoordinator(Generic[S]):
    def __init__(self, what: str, partition_count: Callable[[], int], make_shard: Callable[[Journal], S]) -> None:
        """``what`` a shard has ("groups"); ``partition_count`` is the internal topic's, or what it will have."""
        self._what = what
        self._partition_count = partition_count
        self._make_shard = make_shard
        self._active: dict[int, S] = {}
        self._loading: dict[int, S] = {}
        self._journals: dict[int, Journal] = {}

    # -- which partitions are ours ----------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        return index in self._active or index in self._loading

    def epoch_of(self, index: int) -> int | None:
        """The leader epoch in which the partition's shard may write; None if it is not ours."""
        journal = self._journals.get(index)
        return None if journal is None else journal.epoch

    def renew(self, index: int) -> None:
        """We lead the partition on, in the epoch after the one that its shard knows."""
        self._journals[index].renew()

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def load(self, journal: Journal) -> Iterator[int]:
        """We lead the partition now. It is answered for once the iterator has been run to its end."""
        assert not self.has(journal.index), f"partition {journal.index} is ours already"
        self._journals[journal.index] = journal
        shard = self._loading[journal.index] = self._make_shard(journal)
        return self._load(shard)

    def _load(self, shard: S) -> Iterator[int]:
        index = shard.index
        try:
            for count in shard.load():
                yield count
                if self._loading.get(index) is not shard:
                    return  # unloaded meanwhile
        except (KafkaError, OSError) as error:
            if self._loading.get(index) is not shard:
                return  # unloaded meanwhile, and its log cut
            logger.error("the %s of partition %d cannot be loaded, and are not served: %s", self._what, index, error)
            self.unload(index)
            return
        self._active[index] = self._loading.pop(index)

    def unload(self, index: int) -> None:
        """We do not lead the partition any more."""
        self._journals.pop(index, None)
        for shards in (self._active, self._loading):
            shard = shards.pop(index, None)
            if shard is not None:
                shard.unload()

    def unload_all(self) -> None:
        for index in (*self._active, *self._loading):
            self.unload(index)

    # -- whose is it ------------------------------------------------------------------------------------------------

    def index_of(self, name: str) -> int:
        return partition_for(name, self._partition_count())

    def shard_for(self, name: str) -> S:
        """
        :raises CoordinatorLoadInProgress: if it will answer soon.
        :raises NotCoordinator: if another broker coordinates the name, or nobody does yet.
        """
        index = self.index_of(name)
        shard = self._active.get(index)
        if shard is not None:
            return shard
        if index in self._loading:
            raise CoordinatorLoadInProgress(f"the {self._what} of partition {index} are being loaded")
        raise NotCoordinator(
            f"this broker does not coordinate {name!r}: it has not the {self._what} of partition {index}"
        )

    def active(self, index: int) -> S | None:
        """The shard of the partition, if it answers."""
        return self._active.get(index)

    def shards(self) -> list[S]:
        """Those that answer."""
        return list(self._active.values())
