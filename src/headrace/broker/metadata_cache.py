"""What this broker knows of the cluster: brokers, topics, leaders. Clients' Metadata requests are answered from here.

A topic is replaced whole when anything of it changes, so that what a handler holds never changes under its hands, and
so that the bytes of its answer can be kept with it until then (decision 1: a topic of 10,000 partitions takes long to
encode).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from headrace.protocol.errors import UnknownTopicId, UnknownTopicOrPartition

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    #: Encoded answers, by whatever their maker tells them apart.
    encoded: dict[object, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        #: Grows with every change of topics.
        self.version = 0
        self.nodes: dict[int, Node] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicInfo]:
        """Topics by name."""
        return iter([self._topics[name] for name in sorted(self._topics)])

    def get(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def get_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def named(self, name: str) -> TopicInfo:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    def identified(self, topic_id: UUID | None) -> TopicInfo:
        topic = None if topic_id is None else self.get_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with the id {topic_id}")
        return topic

    def put(self, topic: TopicInfo) -> None:
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self.version += 1

    def remove(self, name: str) -> None:
        topic = self._topics.pop(name)
        del self._names[topic.topic_id]
        self.version += 1
