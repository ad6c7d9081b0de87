"""Holds what a client knows about a cluster: brokers, topics and leaders. No I/O.

A Metadata response replaces the brokers, and the topics that it contains. Other topics stay as they were. A leader with
a newer epoch is not replaced by an outdated response of another broker (KIP-320).
"""

from collections.abc import Iterable
from math import nan
from typing import Any
from uuid import UUID

from headrace.client.types import Node, PartitionInfo, TopicInfo
from headrace.protocol.kio import ErrorCode


class Metadata:
    """The metadata of one cluster, as of the last response."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        #: The topics that a refresh asks for.
        self.followed: set[str] = set()
        self._updated_at_ms: int | None = None
        self._is_invalid = True
        self._is_temporary = False

    # -- age

    def is_stale(self, now_ms: int, max_age_ms: int, retry_ms: int) -> bool:
        """
        :param retry_ms: the maximum age while a topic has no leader yet.
        """
        if self._is_invalid or self._updated_at_ms is None:
            return True
        return now_ms - self._updated_at_ms >= (min(retry_ms, max_age_ms) if self._is_temporary else max_age_ms)

    def age_ms(self, now_ms: int) -> float:
        """Returns the time since the last response; NaN before the first."""
        return nan if self._updated_at_ms is None else now_ms - self._updated_at_ms

    def invalidate(self) -> None:
        """Marks the metadata as wrong. The next caller that needs metadata refreshes it."""
        self._is_invalid = True

    # -- answers

    def update(self, answer: Any, now_ms: int, *, is_of_all_topics: bool = False) -> None:
        self.cluster_id = getattr(answer, "cluster_id", None)
        self.controller_id = int(getattr(answer, "controller_id", -1))
        self.nodes = {
            int(broker.node_id): Node(int(broker.node_id), broker.host, int(broker.port), getattr(broker, "rack", None))
            for broker in answer.brokers
        }
        found = {topic.name: self._topic(topic) for topic in answer.topics}
        self.topics = found if is_of_all_topics else {**self.topics, **found}
        self._updated_at_ms = now_ms
        self._is_invalid = False
        self._is_temporary = any(_is_temporary(found[name]) for name in self.followed & found.keys())

    def forget(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.followed.discard(topic)
            self.topics.pop(topic, None)

    def _topic(self, topic: Any) -> TopicInfo:
        topic_id: UUID | None = getattr(topic, "topic_id", None)
        topic_id = topic_id if topic_id is not None and topic_id.int else None
        before = self.topics.get(topic.name)
        known = {}
        if before is not None and before.id == topic_id:
            known = {partition.partition: partition for partition in before.partitions}
        partitions = (_partition(topic.name, partition) for partition in topic.partitions)
        newest = (_newer(known.get(partition.partition), partition) for partition in partitions)
        return TopicInfo(
            topic.name,
            topic_id,
            tuple(sorted(newest, key=lambda partition: partition.partition)),
            bool(getattr(topic, "is_internal", False)),
            topic.error_code,
        )

    # -- lookups

    def partitions(self, topic: str) -> list[PartitionInfo]:
        found = self.topics.get(topic)
        return [] if found is None else list(found.partitions)

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        found = self.topics.get(topic)
        if found is None:
            return None
        if index < len(found.partitions) and found.partitions[index].partition == index:
            return found.partitions[index]
        return next((partition for partition in found.partitions if partition.partition == index), None)

    def leader(self, topic: str, index: int) -> Node | None:
        partition = self.partition(topic, index)
        return None if partition is None else self.nodes.get(partition.leader_id)

    def topic_id(self, topic: str) -> UUID | None:
        found = self.topics.get(topic)
        return None if found is None else found.id


def _partition(topic: str, partition: Any) -> PartitionInfo:
    return PartitionInfo(
        topic,
        int(partition.partition_index),
        int(partition.leader_id),
        int(getattr(partition, "leader_epoch", -1)),
        tuple(map(int, partition.replica_nodes)),
        tuple(map(int, partition.isr_nodes)),
        tuple(map(int, getattr(partition, "offline_replicas", ()))),
        partition.error_code,
    )


def _newer(before: PartitionInfo | None, now: PartitionInfo) -> PartitionInfo:
    return before if before is not None and before.leader_epoch > now.leader_epoch >= 0 else now


def _is_temporary(topic: TopicInfo) -> bool:
    """Whether the state of a topic will change soon: it was just created, or a partition has no leader."""
    return topic.error in (ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition) or any(
        partition.leader_id < 0 for partition in topic.partitions
    )
