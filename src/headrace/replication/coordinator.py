"""Holds the shards of a coordinator, and finds the shard of a name. Groups and transactions share this code.

A name (of a group, or a transactional id) belongs to one partition of an internal topic, by its hash. The leader of the
partition coordinates the name. All state that belongs to one partition is a *shard*. A partition that this broker has
come to lead is *loading* until its log was applied, and *active* from then on. For other partitions this broker has no
shard.

A shard belongs to one leader epoch of its partition. When the epoch ends, the shard is unloaded, and with it all
state that was not committed. The next leader loads its shard from the log. If this broker leads the partition in the
next epoch too, the shard stays.

Loading is an iterator, so that a caller with an event loop can serve other requests between two batches.
"""

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Generic, Protocol, TypeVar

from headrace.protocol.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from headrace.protocol.internal_records import partition_for
from headrace.replication.journal import Journal

logger = getLogger(__name__)


class Shard(Protocol):
    """The state of one partition of an internal topic."""

    @property
    def index(self) -> int: ...

    def load(self) -> Iterator[int]:
        """Applies the log, one batch per step. Each step yields the number of records of its batch."""
        ...

    def unload(self) -> None:
        """Stops the shard: another broker coordinates its names from now on, or none."""
        ...


S = TypeVar("S", bound=Shard)


class ShardedCoordinator(Generic[S]):
    """The shards of the partitions that this broker leads."""

    def __init__(self, what: str, partition_count: Callable[[], int], make_shard: Callable[[Journal], S]) -> None:
        """
        :param what: the contents of a shard, for messages: "groups".
        :param partition_count: returns the number of partitions that the internal topic has or will have.
        """
        self._what = what
        self._partition_count = partition_count
        self._make_shard = make_shard
        self._active: dict[int, S] = {}
        self._loading: dict[int, S] = {}
        self._journals: dict[int, Journal] = {}

    # -- loading and unloading --------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        return index in self._active or index in self._loading

    def epoch_of(self, index: int) -> int | None:
        """The leader epoch in which the partition's shard may write. None if there is no such shard."""
        journal = self._journals.get(index)
        return None if journal is None else journal.epoch

    def begin_next_epoch(self, index: int) -> None:
        """Keeps the shard of a partition that this broker leads in the next epoch too."""
        self._journals[index].begin_next_epoch()

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def load(self, journal: Journal) -> Iterator[int]:
        """Makes the shard of a partition that this broker leads now. The shard answers once the iterator has ended."""
        assert not self.has(journal.index), f"partition {journal.index} has a shard already"
        self._journals[journal.index] = journal
        shard = self._loading[journal.index] = self._make_shard(journal)
        return self._load(shard)

    def _load(self, shard: S) -> Iterator[int]:
        index = shard.index
        try:
            for count in shard.load():
                yield count
                if self._loading.get(index) is not shard:
                    return  # the shard was unloaded in the meantime
        except (KafkaError, OSError) as error:
            if self._loading.get(index) is not shard:
                return  # the shard was unloaded in the meantime, and its log was truncated
            logger.error(
                "cannot load the %s of partition %d; this broker does not serve them until it becomes leader again: %s",
                self._what,
                index,
                error,
            )
            self.unload(index)
            return
        self._active[index] = self._loading.pop(index)

    def unload(self, index: int) -> None:
        """Unloads the shard of a partition that this broker does not lead any more."""
        self._journals.pop(index, None)
        for shards in (self._active, self._loading):
            shard = shards.pop(index, None)
            if shard is not None:
                shard.unload()

    def unload_all(self) -> None:
        for index in (*self._active, *self._loading):
            self.unload(index)

    # -- finding a shard --------------------------------------------------------------------------------------------

    def index_of(self, name: str) -> int:
        """The partition that a name belongs to."""
        return partition_for(name, self._partition_count())

    def shard_for(self, name: str) -> S:
        """
        :raises CoordinatorLoadInProgress: if the shard is being loaded and will answer soon.
        :raises NotCoordinator: if another broker coordinates the name, or no broker does yet.
        """
        index = self.index_of(name)
        shard = self._active.get(index)
        if shard is not None:
            return shard
        if index in self._loading:
            raise CoordinatorLoadInProgress(f"the {self._what} of partition {index} are being loaded; try again")
        raise NotCoordinator(
            f"this broker does not coordinate {name!r}: it does not lead partition {index} with its {self._what}"
        )

    def active(self, index: int) -> S | None:
        """The shard of a partition, if it is active."""
        return self._active.get(index)

    def shards(self) -> list[S]:
        """All active shards."""
        return list(self._active.values())
