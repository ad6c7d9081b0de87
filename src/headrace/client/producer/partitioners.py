"""Which partition a record goes to.

RoundRobin       each record to the next partition: even, and small batches.
UniformSticky    stays with a partition until a batch of it is done, then draws another (KIP-480). Full batches, but a
                 slow broker's batches last longer, so it is given more: the slow get slower.
Adaptive         the default (KIP-794): stays until ``batch.size`` bytes went to the partition, whatever the broker's
                 pace, then draws another one, the likelier the shorter its queue.

Records with a key go where murmur2 says, so that one key stays in one partition, whatever client it comes from. The
first two look at no key, as Java's classes of these names do not. A partitioner of a user's own may have its say for
keys too: it overrides ``partition_for_key``, or sets ``ignores_keys``.

The draw of the adaptive one, by example: queues of 0, 3 and 1 batches. The longest plus one is 4; less each queue: 4,
1, 3; summed up: 4, 5, 8. A number drawn from 0..7 belongs to the first partition whose sum is above it, so that the
three are drawn with chances of 4, 1 and 3 in 8.

A partitioner is told of the topic's partitions at every call: ``partition_count`` of them, ``available`` those with a
leader. Where none is available any will do: metadata is on its way. Randomness comes in as ``draw(n)``, 0..n-1.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import randrange
from typing import NamedTuple

from headrace.client.producer.murmur2 import partition_for_key as murmur2_partition

Draw = Callable[[int], int]


class LoadTable(NamedTuple):
    """The cumulative frequencies of some partitions, in the order of ``partitions``."""

    frequencies: tuple[int, ...]
    partitions: tuple[int, ...]

    @classmethod
    def of_queues(cls, partitions: Sequence[int], lengths: Sequence[int]) -> "LoadTable | None":
        """Leave out partitions of slow leaders before; None where nothing is left to draw from."""
        if not partitions:
            return None
        above_longest = max(lengths) + 1
        return cls(tuple(accumulate(above_longest - length for length in lengths)), tuple(partitions))

    def pick(self, draw: Draw) -> int:
        return self.partitions[bisect_right(self.frequencies, draw(self.frequencies[-1]))]


class Partitioner:
    """What the producer asks and tells; those that need not know do not listen."""

    #: Records with a key are treated as those without, by :meth:`partition`.
    ignores_keys = False

    def partition_for_key(self, topic: str, key: bytes, partition_count: int) -> int:  # noqa: ARG002
        """The same for a key each time: a record may be appended to a batch that is open without further questions."""
        return murmur2_partition(key, partition_count)

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        raise NotImplementedError

    def on_batch_done(
        self,
        topic: str,  # noqa: ARG002
        partition: int,  # noqa: ARG002
        partition_count: int,  # noqa: ARG002
        available: Sequence[int],  # noqa: ARG002
    ) -> bool:
        """The record would open a new batch in the partition. True: ask again, the choice may be another now.

        Only who says so is asked twice for a record; a round robin that were would skip every other partition.
        """
        return False

    def on_appended(self, topic: str, size_bytes: int, *, is_batch_done: bool) -> None:
        """A record went where ``partition`` said."""

    def on_load(self, topic: str, table: LoadTable | None) -> None:
        """How long the queues are now; None: nothing is known."""


class RoundRobin(Partitioner):
    ignores_keys = True

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return available[turn % len(available)] if available else turn % partition_count


class UniformSticky(Partitioner):
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
            return True  # Another batch of the same partition was done already, and the choice made.
        others = [index for index in (available or range(partition_count)) if index != partition]
        if others:
            self._current[topic] = others[self._draw(len(others))]
        return bool(others)


class _Sticky:
    __slots__ = ("partition", "produced_bytes", "table")

    def __init__(self) -> None:
        self.partition = -1
        self.produced_bytes = 0
        self.table: LoadTable | None = None


class Adaptive(Partitioner):
    """With ``is_adaptive`` off (partitioner.adaptive.partitioning.enable), the draw is uniform."""

    def __init__(self, batch_size_bytes: int, draw: Draw = randrange, *, is_adaptive: bool = True) -> None:
        self._sticky_bytes = max(1, batch_size_bytes)
        self._draw = draw
        self._is_adaptive = is_adaptive
        self._topics: dict[str, _Sticky] = {}

    def partition(self, topic: str, partition_count: int, available: Sequence[int]) -> int:
        sticky = self._topics.get(topic)
        if sticky is None:
            sticky = self._topics[topic] = _Sticky()
        if sticky.partition < 0:
            if sticky.table is not None:
                sticky.partition = sticky.table.pick(self._draw)
            else:
                sticky.partition = _drawn(self._draw, partition_count, available)
        return sticky.partition

    def on_appended(self, topic: str, size_bytes: int, *, is_batch_done: bool) -> None:
        """Move on once batch.size bytes are there: at the end of a batch if one ends soon, so as to leave no small
        ones behind; at twice as many bytes anyway."""
        sticky = self._topics[topic]
        sticky.produced_bytes += size_bytes
        if sticky.produced_bytes < self._sticky_bytes:
            return
        if is_batch_done or sticky.produced_bytes >= 2 * self._sticky_bytes:
            sticky.partition, sticky.produced_bytes = -1, 0

    def on_load(self, topic: str, table: LoadTable | None) -> None:
        if self._is_adaptive and topic in self._topics:
            self._topics[topic].table = table


class SlowLeaders:
    """Leaders that had batches to take and took none for ``partitioner.availability.timeout.ms`` (0: never slow)."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._asked_ms: dict[int, int] = {}
        self._drained_ms: dict[int, int] = {}

    def ready(self, node_id: int, now_ms: int, *, is_drained: bool) -> None:
        """There were batches for the node; ``is_drained`` says whether its connection took them."""
        self._asked_ms[node_id] = now_ms
        if is_drained or node_id not in self._drained_ms:
            self._drained_ms[node_id] = now_ms

    def is_slow(self, node_id: int) -> bool:
        if self._timeout_ms <= 0 or node_id not in self._asked_ms:
            return False
        return self._asked_ms[node_id] - self._drained_ms[node_id] > self._timeout_ms


def _drawn(draw: Draw, partition_count: int, available: Sequence[int]) -> int:
    return available[draw(len(available))] if available else draw(partition_count)
