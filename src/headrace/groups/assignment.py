"""Which partitions somebody has or is to have: topics by id, and of each a set of partition numbers.

An assignment is never changed once made, so that it can be shared between a member's past, present and target. No topic
in it has an empty set: two assignments are equal if and only if they hold the same partitions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]

NOTHING: Assignment = {}


def both(left: Assignment, right: Assignment) -> Assignment:
    return {topic: kept for topic in left if topic in right and (kept := left[topic] & right[topic])}


def without(left: Assignment, right: Assignment) -> Assignment:
    return {topic: kept for topic, partitions in left.items() if (kept := partitions - right.get(topic, frozenset()))}


def together(left: Assignment, right: Assignment) -> Assignment:
    joined = dict(left)
    for topic, partitions in right.items():
        joined[topic] = joined.get(topic, frozenset()) | partitions
    return joined


def overlaps(left: Assignment, right: Assignment) -> bool:
    return any(not partitions.isdisjoint(right.get(topic, ())) for topic, partitions in left.items())


def is_within(inner: Assignment, outer: Assignment) -> bool:
    return all(partitions <= outer.get(topic, frozenset()) for topic, partitions in inner.items())


def each(assignment: Assignment) -> Iterator[tuple[UUID, int]]:
    return ((topic, partition) for topic, partitions in assignment.items() for partition in partitions)


def of_pairs(pairs: Iterable[tuple[UUID, int]]) -> Assignment:
    gathered: dict[UUID, set[int]] = {}
    for topic, partition in pairs:
        gathered.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in gathered.items()}


def of_wire(topics: Iterable[Any]) -> Assignment:
    """From a request's or a record's entities with ``topic_id`` and ``partitions``."""
    return of_pairs((topic.topic_id, partition) for topic in topics for partition in topic.partitions)


def to_wire(assignment: Assignment) -> list[dict[str, object]]:
    """In one order, whatever the sets' is."""
    return [{"topic_id": topic, "partitions": sorted(assignment[topic])} for topic in sorted(assignment)]
