"""Ranges of offsets, without a broker and without Spark: how they are split, shared out and narrowed.

A range is what one task reads: ``[start, end)`` of one partition, perhaps of some time only. Nothing here knows how
many records there are in a range; compaction and markers of transactions make offsets that no record has, so all
numbers are of offsets, as they are in Spark's connector.

* :func:`split`: at least so many ranges, none with more than so many offsets.
* :func:`share_out`: so many offsets in all, to each partition in proportion to what it has waiting.
* :class:`Bounds`: what the filters of a query leave of the log. Each filter of ``partition``, ``offset``, ``timestamp``
  and ``topic`` that can be said so is applied exactly, so Spark need not look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, TypeVar

from headrace.client.types import TopicPartition

_T = TypeVar("_T")
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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


# -- filters


@dataclass(frozen=True)
class Bounds:
    """What is wanted of the log. Ends belong to it; None is all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    min_offset: int = 0
    max_offset: int = _INT64_MAX
    min_timestamp_ms: int = _INT64_MIN
    max_timestamp_ms: int = _INT64_MAX

    @property
    def has_min_timestamp(self) -> bool:
        return self.min_timestamp_ms > _INT64_MIN

    def narrow(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What is left of the ranges by topic, partition and offset; time is for the reader."""
        if self.min_timestamp_ms > self.max_timestamp_ms:
            return []
        narrowed = [
            one._replace(start=max(one.start, self.min_offset), end=min(one.end, self.max_offset + 1))
            for one in ranges
            if (self.topics is None or one.topic in self.topics)
            and (self.partitions is None or one.partition in self.partitions)
        ]
        return [one for one in narrowed if one.size > 0]

    def with_filter(self, kind: str, column: str, value: object) -> Bounds | None:
        """Narrower by one of Spark's filters, as ``("GreaterThan", "offset", 5)``; None if it cannot be said so."""
        if kind == "IsNotNull":
            return self if column in _APPLY else None
        apply = _APPLY.get(column)
        return None if apply is None else apply(self, kind, value)


def _by_name(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    names = _one_of(kind, value, str)
    if names is None:
        return None
    wanted = frozenset(names)
    return replace(bounds, topics=wanted if bounds.topics is None else bounds.topics & wanted)


def _by_partition(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    numbers = _one_of(kind, value, int)
    if numbers is not None:
        wanted = frozenset(numbers)
        return replace(bounds, partitions=wanted if bounds.partitions is None else bounds.partitions & wanted)
    return None


def _one_of(kind: str, value: object, wanted: type[_T]) -> list[_T] | None:
    values = [value] if kind == "EqualTo" else list(value) if kind == "In" and isinstance(value, tuple | list) else None
    if values is None or not all(one is None or type(one) is wanted for one in values):
        return None
    # A null in a list of values equals nothing.
    return [one for one in values if isinstance(one, wanted)]


def _by_offset(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    if type(value) is not int or kind not in _ENDS:
        return None
    low, high = _ENDS[kind](value, value)
    return replace(bounds, min_offset=max(bounds.min_offset, low), max_offset=min(bounds.max_offset, high))


def _by_timestamp(bounds: Bounds, kind: str, value: object) -> Bounds | None:
    """Records have milliseconds, Spark asks in microseconds."""
    if not isinstance(value, datetime) or value.tzinfo is None or kind not in _ENDS:
        return None
    micros = (value - _EPOCH) // _MICROSECOND
    floor_ms, ceiling_ms = micros // 1000, -(-micros // 1000)
    low, high = _ENDS[kind](floor_ms, ceiling_ms)
    return replace(
        bounds,
        min_timestamp_ms=max(bounds.min_timestamp_ms, low),
        max_timestamp_ms=min(bounds.max_timestamp_ms, high),
    )


#: Of a comparison with a value between these two whole numbers, or equal to both: the least and the largest that fit.
_ENDS: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "EqualTo": lambda floor, ceiling: (ceiling, floor),
    "GreaterThan": lambda floor, _: (floor + 1, _INT64_MAX),
    "GreaterThanOrEqual": lambda _, ceiling: (ceiling, _INT64_MAX),
    "LessThan": lambda _, ceiling: (_INT64_MIN, ceiling - 1),
    "LessThanOrEqual": lambda floor, _: (_INT64_MIN, floor),
}
_APPLY: dict[str, Callable[[Bounds, str, object], Bounds | None]] = {
    "topic": _by_name,
    "partition": _by_partition,
    "offset": _by_offset,
    "timestamp": _by_timestamp,
}
