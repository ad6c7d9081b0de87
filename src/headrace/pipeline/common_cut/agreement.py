"""Agrees on the cut of a round: for each partition, the offset up to which the followers read next. A pure function.

Each follower has looked at the log by itself. The cut has the largest end that any of them has seen, because whatever
one of them has seen is there for all. It moves on by at most ``MAX_ROUND_OFFSETS`` offsets, which every way reads in
one micro-batch. A partition that one follower knows and another one has not noticed yet waits for the next round.

Followers are at the same offsets of their common partitions, or they are not admitted: what has read less than the
others catches up by itself, and what has read more waits until the others are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.offsets import by_partition, by_topic, offset_at, offsets_between, updated
from headrace.pipeline.progress.ranges import share_out
from headrace.pipeline.serving.catalog_tables.versions import Offsets

#: At most this many offsets per round.
MAX_ROUND_OFFSETS = 20_000


class LogPosition(NamedTuple):
    """Holds where a follower is, and where it has seen the log end.

    :ivar read: its progress.
    :ivar ends: where the partitions end that it knows.
    :ivar reads: whether it reads a topic.
    :ivar is_in: whether it was in the last round, or had nothing to read then.
    """

    read: Offsets
    ends: Offsets
    reads: Callable[[str], bool]
    is_in: bool

    @property
    def waiting(self) -> int:
        return offsets_between(self.read, self.ends)


class Place(Enum):
    #: It takes part: its micro-batch ends at the cut.
    IN = auto()
    #: It has read more than the others.
    AHEAD = auto()
    #: It has read less than the others, by more than a round.
    BEHIND = auto()


Agreed: TypeAlias = list[tuple[Place, Offsets]]


def agree(positions: Sequence[LogPosition], limit: int = MAX_ROUND_OFFSETS) -> Agreed:
    """For each position: its place, and up to where the follower reads if it takes part."""
    base = _base(positions)
    ends: dict[TopicPartition, int] = {}
    for position in positions:
        for partition, end in by_partition(position.ends).items():
            ends[partition] = max(end, ends.get(partition, 0))
    topics = {partition.topic for partition in ends}
    reads = [frozenset(topic for topic in topics if each.reads(topic)) for each in positions]
    started: dict[TopicPartition, int] = {}
    for partition, end in ends.items():
        readers = [position for position, of in zip(positions, reads, strict=True) if partition.topic in of]
        inside = [each for each in readers if each in base]
        if all(partition.partition in position.ends.get(partition.topic, {}) for position in inside):
            started[partition] = min(end, max(offset_at(position.read, partition) for position in inside or readers))
    moves = share_out({partition: ends[partition] - start for partition, start in started.items()}, limit)
    cut = {partition: start + moves[partition] for partition, start in started.items()}
    return [
        _place(position, of, cut, started if position in base else {}, limit)
        for position, of in zip(positions, reads, strict=True)
    ]


def _base(positions: Sequence[LogPosition]) -> list[LogPosition]:
    """The followers that the others have to join: the followers of the last round, else the nearest one to the end."""
    return [each for each in positions if each.is_in] or [min(positions, key=lambda each: each.waiting)]


def _place(
    position: LogPosition,
    topics: frozenset[str],
    cut: dict[TopicPartition, int],
    at_least: dict[TopicPartition, int],
    limit: int,
) -> tuple[Place, Offsets]:
    """
    :param at_least: where the followers of the last round are. A follower with less did not reach the last cut.
    """
    own = {partition: offset for partition, offset in cut.items() if partition.topic in topics}
    if any(offset_at(position.read, partition) > offset for partition, offset in own.items()):
        return Place.AHEAD, position.read
    knows_all = all(partition.partition in position.ends.get(partition.topic, {}) for partition in own)
    is_short = any(offset_at(position.read, each) < at for each, at in at_least.items() if each.topic in topics)
    own_cut = updated(position.read, by_topic(own))
    if not knows_all or is_short or offsets_between(position.read, own_cut) > limit:
        return Place.BEHIND, position.ends
    return Place.IN, own_cut
