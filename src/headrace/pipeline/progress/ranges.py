"""Ranges of offsets, without a broker and without Spark: how they are split and shared out.

A range is what one task reads: ``[start, end)`` of one partition. Nothing here knows how
many records there are in a range; compaction and markers of transactions make offsets that no record has, so all
numbers are of offsets, as they are in Spark's connector.

* :func:`split`: at least so many ranges, none with more than so many offsets.
* :func:`share_out`: so many offsets in all, to each partition in proportion to what it has waiting.
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
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Ranges that are not empty, cut so that there are enough of them and none is too large.

    Large ones are cut first. There may be fewer than wanted if there are fewer offsets, never fewer than were given.
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
    """How many offsets each partition may go on, so that it is the limit in all, or all that there is.

    Each gets its proportion; what rounding leaves goes to those that lost most by it, so that none waits forever.
    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    shares = {place: count * limit // total for place, count in waiting.items()}
    lost = sorted(waiting, key=lambda place: (-(waiting[place] * limit % total), place))
    for place in lost[: limit - sum(shares.values())]:
        shares[place] += 1
    return shares
