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


class Look(NamedTuple):
    """Holds the log as a follower has seen it.

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


def agree(looks: Sequence[Look], limit: int = MAX_ROUND_OFFSETS) -> Agreed:
    """For each look: its place, and up to where the follower reads if it takes part."""
    base = _base(looks)
    ends: dict[TopicPartition, int] = {}
    for look in looks:
        for partition, end in by_partition(look.ends).items():
            ends[partition] = max(end, ends.get(partition, 0))
    topics = {partition.topic for partition in ends}
    reads = [frozenset(topic for topic in topics if look.reads(topic)) for look in looks]
    started: dict[TopicPartition, int] = {}
    for partition, end in ends.items():
        readers = [look for look, of in zip(looks, reads, strict=True) if partition.topic in of]
        inside = [look for look in readers if look in base]
        if all(partition.partition in look.ends.get(partition.topic, {}) for look in inside):
            started[partition] = min(end, max(offset_at(look.read, partition) for look in inside or readers))
    moves = share_out({partition: ends[partition] - start for partition, start in started.items()}, limit)
    cut = {partition: start + moves[partition] for partition, start in started.items()}
    return [
        _place(look, of, cut, started if look in base else {}, limit) for look, of in zip(looks, reads, strict=True)
    ]


def _base(looks: Sequence[Look]) -> list[Look]:
    """The followers that the others have to join: the followers of the last round, else the nearest one to the end."""
    return [look for look in looks if look.is_in] or [min(looks, key=lambda look: look.waiting)]


def _place(
    look: Look, topics: frozenset[str], cut: dict[TopicPartition, int], at_least: dict[TopicPartition, int], limit: int
) -> tuple[Place, Offsets]:
    """
    :param at_least: where the followers of the last round are. A follower with less did not reach the last cut.
    """
    own = {partition: offset for partition, offset in cut.items() if partition.topic in topics}
    if any(offset_at(look.read, partition) > offset for partition, offset in own.items()):
        return Place.AHEAD, look.read
    knows_all = all(partition.partition in look.ends.get(partition.topic, {}) for partition in own)
    is_short = any(offset_at(look.read, each) < at for each, at in at_least.items() if each.topic in topics)
    own_cut = updated(look.read, by_topic(own))
    if not knows_all or is_short or offsets_between(look.read, own_cut) > limit:
        return Place.BEHIND, look.ends
    return Place.IN, own_cut
