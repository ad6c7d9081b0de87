"""Compares and converts offsets: for each topic and partition, the next offset to read.

The type ``Offsets`` is by topic: ``{"clicks": {0: 17, 1: 23}}``. A partition that is not named has offset 0: nothing of
it was read. The clients use ``TopicPartition`` as keys; Spark and JSON have partitions as texts
(``spark.source.stream_reader``, ``serving.catalog_tables.versions``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.ranges import OffsetRange, share_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipeline.serving.catalog_tables.versions import Offsets


def by_topic(offsets: Mapping[TopicPartition, int]) -> Offsets:
    """The same offsets by topic, sorted."""
    found: Offsets = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[partition.partition] = offsets[partition]
    return found


def by_partition(offsets: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def offset_at(offsets: Mapping[str, Mapping[int, int]], partition: TopicPartition) -> int:
    return offsets.get(partition.topic, {}).get(partition.partition, 0)


def updated(offsets: Offsets, newer: Mapping[str, Mapping[int, int]]) -> Offsets:
    """The offsets, with those of ``newer`` in place of the old ones."""
    return {topic: {**offsets.get(topic, {}), **newer.get(topic, {})} for topic in sorted({*offsets, *newer})}


# ------------------------------------------------------------------------------------------------------------ comparing


def is_before(offsets: Offsets, other: Offsets) -> bool:
    """Whether no offset is larger than the other one: everything that the first covers, the other covers too."""
    return all(offset <= offset_at(other, partition) for partition, offset in by_partition(offsets).items())


def is_same(offsets: Offsets, other: Offsets) -> bool:
    return is_before(offsets, other) and is_before(other, offsets)


# ---------------------------------------------------------------------------------------------------------- the records


def offsets_between(offsets: Offsets, later: Offsets) -> int:
    """How many offsets lie between. Not every offset has a record."""
    return sum(max(0, end - offset_at(offsets, partition)) for partition, end in by_partition(later).items())


def ranges_between(offsets: Offsets, later: Offsets, limit: int | None = None) -> list[OffsetRange]:
    """The ranges to read, sorted by partition.

    :param limit: at most this many offsets in all, shared in proportion to what each partition has waiting.
    """
    waiting = {partition: max(0, end - offset_at(offsets, partition)) for partition, end in by_partition(later).items()}
    counts = waiting if limit is None else share_out(waiting, limit)
    ranges = []
    for partition, count in sorted(counts.items()):
        start = offset_at(offsets, partition)
        if count > 0:
            ranges.append(OffsetRange(*partition, start, start + count))
    return ranges
