"""Counts the partitions that are not as they should be: a function of descriptions, without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.admin.types import PartitionDescription, TopicDescription
from headrace.client.types import TopicPartition

#: How many partitions are named per kind of trouble.
MOST_NAMED = 20


@dataclass(frozen=True)
class Trouble:
    """Partitions with the same trouble: how many, and the names of the first."""

    count: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Health:
    """The health of the partitions that the user may see.

    :ivar offline: partitions without a leader: nobody can write or read them.
    :ivar under_replicated: partitions of which a replica is not in sync.
    :ivar under_min_isr: partitions that refuse producers with ``acks=all``; empty if the setting is not known.
    """

    partitions: int
    offline: Trouble
    under_replicated: Trouble
    under_min_isr: Trouble


def health_of(topics: Iterable[TopicDescription], min_isr: Mapping[str, int]) -> Health:
    """
    :param min_isr: ``min.insync.replicas`` by topic, of the topics where it is known.
    """
    offline, under_replicated, under_min_isr, count = [], [], [], 0
    for topic in topics:
        least = min_isr.get(topic.name, 0)
        for partition in topic.partitions:
            count += 1
            at = TopicPartition(topic.name, partition.partition)
            if partition.leader_id < 0:
                offline.append(at)
            if is_under_replicated(partition):
                under_replicated.append(at)
            if len(partition.in_sync_replicas) < least:
                under_min_isr.append(at)
    return Health(count, _trouble(offline), _trouble(under_replicated), _trouble(under_min_isr))


def is_under_replicated(partition: PartitionDescription) -> bool:
    return len(partition.in_sync_replicas) < len(partition.replicas)


def _trouble(partitions: list[TopicPartition]) -> Trouble:
    return Trouble(len(partitions), tuple(partitions[:MOST_NAMED]))
