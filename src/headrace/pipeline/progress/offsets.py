"""How far something is in the log, as a value: points, what lies between two of them, and their forms.

A **point** says of each partition the next offset to read, by topic: ``{"clicks": {0: 17, 1: 23}}``. What it does not
name has not been read at all, which is 0. The log and its clients speak of ``TopicPartition``; Spark and JSON have
partitions as texts (``stream_reader``, ``serving.catalog_tables``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.ranges import OffsetRange, share_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.serving.catalog_tables import Offsets


def by_topic(offsets: Mapping[TopicPartition, int]) -> Offsets:
    """As a point, sorted."""
    found: Offsets = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[place.partition] = offsets[place]
    return found


def offset_at(point: Mapping[str, Mapping[int, int]], place: TopicPartition) -> int:
    return point.get(place.topic, {}).get(place.partition, 0)


def by_partition(point: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in point.items()
        for partition, offset in partitions.items()
    }


# ------------------------------------------------------------------------------------------------------------ comparing


def is_before(point: Offsets, other: Offsets) -> bool:
    """Or at it: nothing that the first point covers is missing from the other."""
    return all(offset <= offset_at(other, place) for place, offset in by_partition(point).items())


def is_same(point: Offsets, other: Offsets) -> bool:
    return is_before(point, other) and is_before(other, point)


def joined(point: Offsets, further: Mapping[str, Mapping[int, int]]) -> Offsets:
    """The point with some partitions further on."""
    return {topic: {**point.get(topic, {}), **further.get(topic, {})} for topic in sorted({*point, *further})}


# ------------------------------------------------------------------------------------------------------ what is between


def offsets_between(point: Offsets, later: Offsets) -> int:
    """How many there are; offsets need not have records."""
    return sum(max(0, offset - offset_at(point, place)) for place, offset in by_partition(later).items())


def ranges_between(point: Offsets, later: Offsets, limit: int | None = None) -> list[OffsetRange]:
    """What there is to read, sorted.

    :param limit: so many offsets at most, to each partition in proportion to what it has waiting.
    """
    waiting = {place: max(0, end - offset_at(point, place)) for place, end in by_partition(later).items()}
    counts = waiting if limit is None else share_out(waiting, limit)
    ranges = []
    for place, count in sorted(counts.items()):
        start = offset_at(point, place)
        if count > 0:
            ranges.append(OffsetRange(*place, start, start + count))
    return ranges
