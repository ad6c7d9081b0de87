"""What is known of a cluster: brokers, topics, leaders. Values and their bookkeeping, no I/O.

An answer to Metadata replaces the brokers and the topics that it names; other topics stay as they were. A leader known
with a newer epoch is not replaced by an older answer of a broker that lags behind (KIP-320).
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from headrace.client.types import Node, PartitionInfo, TopicInfo
from headrace.protocol.kio import ErrorCode


class Metadata:
    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        #: Topics that a refresh asks for.
        self.followed: set[str] = set()
        self._updated_at_ms: int | None = None
        self._is_wanted = True
        self._is_of_passage = False

    # -- age

    def is_stale(self, now_ms: int, max_age_ms: int, retry_ms: int) -> bool:
        """
        :param retry_ms: how soon to look again at a topic that had no leader yet.
        """
        if self._is_wanted or self._updated_at_ms is None:
            return True
        return now_ms - self._updated_at_ms >= (min(retry_ms, max_age_ms) if self._is_of_passage else max_age_ms)

    def invalidate(self) -> None:
        """Says that something turned out wrong; the next who needs metadata refreshes it."""
        self._is_wanted = True

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
        self._is_wanted = False
        self._is_of_passage = any(_is_of_passage(found[name]) for name in self.followed & found.keys())

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

    # -- questions

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

    def topic_name(self, topic_id: UUID) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.id == topic_id), None)


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


def _is_of_passage(topic: TopicInfo) -> bool:
    """Whether the answer was one of passage: a topic just made, a partition without a leader."""
    return topic.error in (ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition) or any(
        partition.leader_id < 0 for partition in topic.partitions
    )
