"""Decides which brokers may be stopped, one at a time: a function of descriptions, without I/O.

A broker may be stopped if each partition whose in-sync replicas include the broker keeps at least
``min.insync.replicas`` without it. A partition that has no other in-sync replica goes offline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.admin.types import TopicDescription
from headrace.client.types import TopicPartition

MOST_NAMED = 20


@dataclass(frozen=True)
class Readiness:
    """Whether a broker may be stopped now.

    :ivar goes_offline: how many partitions nobody could read or write meanwhile.
    :ivar goes_below: how many further partitions would refuse producers with ``acks=all``.
    :ivar partitions: the first of both.
    """

    broker_id: int
    may_stop: bool
    goes_offline: int
    goes_below: int
    partitions: tuple[TopicPartition, ...]


def readiness_of(
    brokers: Iterable[int], topics: Iterable[TopicDescription], min_isr: Mapping[str, int]
) -> tuple[Readiness, ...]:
    """
    :param min_isr: ``min.insync.replicas`` by topic; 1 where it is not known.
    """
    offline: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in brokers}
    below: dict[int, list[TopicPartition]] = {broker_id: [] for broker_id in offline}
    for topic in topics:
        least = min_isr.get(topic.name, 1)
        for partition in topic.partitions:
            left = len(partition.in_sync_replicas) - 1
            if left >= max(1, least):
                continue
            found = offline if left < 1 else below
            for broker_id in partition.in_sync_replicas:
                found.setdefault(broker_id, []).append(TopicPartition(topic.name, partition.partition))
    return tuple(
        Readiness(
            broker_id,
            not offline[broker_id] and not below.get(broker_id),
            len(offline[broker_id]),
            len(below.get(broker_id, ())),
            tuple([*offline[broker_id], *below.get(broker_id, ())][:MOST_NAMED]),
        )
        for broker_id in sorted(offline)
    )
