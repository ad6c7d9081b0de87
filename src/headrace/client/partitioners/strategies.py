"""Chooses the partition of each record. Three strategies, and the base class for a strategy of the user's own.

RoundRobin       sends each record to the next partition. The load is even, and the batches are small.
UniformSticky    stays with one partition until a batch of it is full, then draws another partition (KIP-480). Batches
                 are full. But batches for a slow broker take longer to fill and drain, so a slow broker gets more
                 records than a fast one, and becomes slower still.
Adaptive         the default (KIP-794). It stays with one partition until ``batch.size`` bytes went there, however fast
                 the broker is. Then it draws another partition; a short queue makes a partition more likely.

A record with a key goes where the murmur2 hash of the key says, so all clients put one key into one partition.
RoundRobin and UniformSticky ignore keys, like the Java classes of these names. A partitioner of a user's own decides
about keys too if it overrides ``partition_for_key`` or sets ``ignores_keys``.

An example of the draw of Adaptive: three queues have 0, 3 and 1 batches. The longest queue plus one is 4. Minus each
queue length, this gives 4, 1 and 3. The running sums are 4, 5 and 8. A number drawn from 0..7 belongs to the first
partition whose sum is above the number, so the three partitions have chances of 4, 1 and 3 in 8.

Each call gets the number of partitions (``partition_count``) and those that have a leader (``available``). If no
partition is available, any will do, because new metadata is on its way. Randomness is passed in as ``draw(n)``, which
returns 0..n-1.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from headrace.client.own_random import randrange
from headrace.client.partitioners.murmur2 import partition_for_key as murmur2_partition

Draw = Callable[[int], int]


class LoadTable(NamedTuple):
    """The cumulative frequencies of some partitions, in the order of ``partitions``."""

    frequencies: tuple[int, ...]
    partitions: tuple[int, ...]

    @classmethod
    def of_queues(cls, partitions: Sequence[int], lengths: Sequence[int]) -> "LoadTable | None":
        """Builds the table from queue lengths. Returns None if there is no partition to draw from.

        The caller leaves out partitions of slow leaders.
        """
        if not partitions:
            return None
        above_longest = max(lengths) + 1
        return cls(tuple(accumulate(above_longest - length for length in lengths)), tuple(partitions))

    def pick(self, draw: Draw) -> int:
        """Draws a partition."""
        return self.partitions[bisect_right(self.frequencies, draw(self.frequencies[-1]))]


class Partitioner:
    """The base class of all partitioners. Subclasses override :meth:`partition`, and the other methods as they need."""

    #: True: records with a key are treated like records without one, by :meth:`partition`.
    ignores_keys = False

    def partition_for_key(self, topic: str, key: bytes, partition_count: int) -> int:  # noqa: ARG002
        """Returns the partition of a key.

        The answer must be the same each time: the producer may append a record to an open batch of a partition without
        asking again.
        """
        return murmur2_partition(key, partition_count)

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        """Returns the partition of the next record without a key."""
        raise NotImplementedError

    def on_batch_done(
        self,
        topic: str,  # noqa: ARG002
        partition: int,  # noqa: ARG002
        partition_count: int,  # noqa: ARG002
        available: Sequence[int],  # noqa: ARG002
    ) -> bool:
        """Called when the next record would open a new batch in the partition.

        True makes the producer call :meth:`partition` again for the same record. RoundRobin must return False, or it
        would skip every other partition.
        """
        return False

    def on_appended(self, topic: str, size_bytes: int, *, is_batch_done: bool) -> None:
        """Called when records were appended to the partition that :meth:`partition` chose."""

    def on_load(self, topic: str, table: LoadTable | None) -> None:
        """Called with the current queue lengths of the topic's partitions; None if they are not known."""


class RoundRobin(Partitioner):
    """Sends each record to the next partition."""

    ignores_keys = True

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partition_count


class UniformSticky(Partitioner):
    """Stays with one partition until a batch of it is full (KIP-480)."""

    ignores_keys = True

    def __init__(self, draw: Draw = randrange) -> None:
        self._draw = draw
        self._current: dict[str, int] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        current = self._current.get(topic)
        if current is None:
            current = self._current[topic] = _drawn(self._draw, partition_count, available)
        return current

    def on_batch_done(self, topic: str, partition: int, partition_count: int, available: Sequence[int]) -> bool:
        if self._current.get(topic) != partition:
            return True  # An earlier batch of the same partition has already changed the choice.
        others = [index for index in (available or range(partition_count)) if index != partition]
        if others:
            self._current[topic] = others[self._draw(len(others))]
        return bool(others)


class _StickyChoice:
    """The current partition of one topic; -1 if the next record draws a new one."""

    __slots__ = ("partition", "produced_bytes", "table")

    def __init__(self) -> None:
        self.partition = -1
        self.produced_bytes = 0
        self.table: LoadTable | None = None


class Adaptive(Partitioner):
    """Stays with one partition for ``batch.size`` bytes, then prefers partitions with short queues (KIP-794).

    With ``is_adaptive`` off (``partitioner.adaptive.partitioning.enable``), all partitions are equally likely.
    """

    def __init__(self, batch_size_bytes: int, draw: Draw = randrange, *, is_adaptive: bool = True) -> None:
        self._sticky_bytes = max(1, batch_size_bytes)
        self._draw = draw
        self._is_adaptive = is_adaptive
        self._topics: dict[str, _StickyChoice] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        sticky = self._topics.get(topic)
        if sticky is None:
            sticky = self._topics[topic] = _StickyChoice()
        if sticky.partition < 0:
            if sticky.table is not None:
                sticky.partition = sticky.table.pick(self._draw)
            else:
                sticky.partition = _drawn(self._draw, partition_count, available)
        return sticky.partition

    def on_appended(self, topic: str, size_bytes: int, *, is_batch_done: bool) -> None:
        """Leaves the partition once it has got ``batch.size`` bytes.

        The change waits for the end of the current batch, so that no small batch is left behind, but not for more than
        twice ``batch.size`` bytes.
        """
        sticky = self._topics[topic]
        sticky.produced_bytes += size_bytes
        if sticky.produced_bytes < self._sticky_bytes:
            return
        if is_batch_done or sticky.produced_bytes >= 2 * self._sticky_bytes:
            sticky.partition, sticky.produced_bytes = -1, 0

    def on_load(self, topic: str, table: LoadTable | None) -> None:
        if self._is_adaptive and topic in self._topics:
            self._topics[topic].table = table


def _drawn(draw: Draw, partition_count: int, available: Sequence[int]) -> int:
    return available[draw(len(available))] if available else draw(partition_count)
