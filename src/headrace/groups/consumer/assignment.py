"""A set of partitions: for each topic id, the numbers of its partitions.

An assignment is never changed after it was made, so several members and the target can share one. No topic in an
assignment has an empty set. So two assignments are equal if and only if they hold the same partitions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from headrace.groups.context import TopicLookup

Assignment = Mapping[UUID, frozenset[int]]

NO_PARTITIONS: Assignment = {}


def intersection(left: Assignment, right: Assignment) -> Assignment:
    """The partitions that are in both."""
    return {topic: kept for topic in left if topic in right and (kept := left[topic] & right[topic])}


def difference(left: Assignment, right: Assignment) -> Assignment:
    """The partitions of ``left`` that are not in ``right``."""
    return {topic: kept for topic, partitions in left.items() if (kept := partitions - right.get(topic, frozenset()))}


def union(left: Assignment, right: Assignment) -> Assignment:
    """The partitions that are in one of the two, or in both."""
    joined = dict(left)
    for topic, partitions in right.items():
        joined[topic] = joined.get(topic, frozenset()) | partitions
    return joined


def overlaps(left: Assignment, right: Assignment) -> bool:
    """Tells whether a partition is in both."""
    return any(not partitions.isdisjoint(right.get(topic, ())) for topic, partitions in left.items())


def is_within(inner: Assignment, outer: Assignment) -> bool:
    """Tells whether all partitions of ``inner`` are in ``outer``."""
    return all(partitions <= outer.get(topic, frozenset()) for topic, partitions in inner.items())


def pairs(assignment: Assignment) -> Iterator[tuple[UUID, int]]:
    """Each partition as topic id and partition number."""
    return ((topic, partition) for topic, partitions in assignment.items() for partition in partitions)


def from_pairs(partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    gathered: dict[UUID, set[int]] = {}
    for topic, partition in partitions:
        gathered.setdefault(topic, set()).add(partition)
    return {topic: frozenset(numbers) for topic, numbers in gathered.items()}


def from_wire(topics: Iterable[Any]) -> Assignment:
    """The assignment in a request or a record, whose entities have ``topic_id`` and ``partitions``."""
    return from_pairs((topic.topic_id, partition) for topic in topics for partition in topic.partitions)


def to_wire(assignment: Assignment) -> list[dict[str, object]]:
    """The same entities, always in the same order."""
    return [{"topic_id": topic, "partitions": sorted(assignment[topic])} for topic in sorted(assignment)]


def from_names(partitions: Mapping[str, frozenset[int]], topics: TopicLookup) -> Assignment:
    """The assignment of partitions by topic names. Topics that do not exist are left out."""
    return {
        topic.topic_id: numbers for name, numbers in partitions.items() if numbers and (topic := topics.topic(name))
    }


def to_names(assignment: Assignment, topics: TopicLookup) -> dict[str, frozenset[int]]:
    """The partitions by topic names. Topics that do not exist any more are left out."""
    return {topic.name: numbers for topic_id, numbers in assignment.items() if (topic := topics.topic_by_id(topic_id))}
