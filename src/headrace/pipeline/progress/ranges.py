"""Ranges of offsets: how they are split into tasks, and how a limit is shared among partitions.

A range is what one task reads: ``[start, end)`` of one partition. A range may have fewer records than offsets:
compaction and the markers of transactions leave offsets without a record. So all numbers here count offsets, as in
Spark's Kafka connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headrace.client.types import TopicPartition


class OffsetRange(NamedTuple):
    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Splits ranges, the largest first, until there are ``min_partitions`` and none exceeds ``max_records`` offsets.

    Empty ranges are left out. There are fewer ranges than ``min_partitions`` if there are fewer offsets than that.
    """
    whole = [one for one in ranges if one.size > 0]
    pieces = [1 if max_records is None else -(-one.size // max_records) for one in whole]
    missing = (min_partitions or 0) - sum(pieces)
    for _ in range(missing):
        at = max(range(len(whole)), key=lambda at: whole[at].size / pieces[at], default=-1)
        if at < 0 or whole[at].size <= pieces[at]:
            break
        pieces[at] += 1
    return [piece for one, count in zip(whole, pieces, strict=True) for piece in _cut(one, count)]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    ends = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(ends)]


def share_out(waiting: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """How many offsets each partition may advance, so that the sum is the limit, or everything if that is less.

    Each partition gets its proportion of the limit. What rounding leaves goes to the partitions that lost most by
    rounding, so that no partition waits forever.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {partition: count * limit // total for partition, count in waiting.items()}
    lost = sorted(waiting, key=lambda partition: (-(waiting[partition] * limit % total), partition))
    for partition in lost[: limit - sum(shares.values())]:
        shares[partition] += 1
    return shares
