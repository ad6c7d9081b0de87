"""What this broker knows of the cluster: brokers, topics, leaders. Clients' Metadata requests are answered from here.

A topic is replaced whole when anything of it changes, so that what a handler holds never changes under its hands, and
so that the bytes of its answer can be kept with it until then (decision 1: a topic of 10,000 partitions takes long to
encode).

In a cluster all of it comes from the controller, by UpdateMetadata (``cluster/metadata_updates.py``). A broker has an
address for each of its listeners, and a client is shown those of the listener that it came by.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headrace.controller.topic_rules import metric_name
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
        #: The brokers that live, where other brokers reach them.
        self.nodes: dict[int, Node] = {}
        #: By listener, the brokers that have it; empty for a broker alone, who knows its own.
        self._by_listener: Mapping[str, Mapping[int, Node]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        self._by_metric_name: dict[str, str] = {}

    def set_nodes(self, nodes: Mapping[int, Node], by_listener: Mapping[str, Mapping[int, Node]]) -> bool:
        """Which brokers live now; whether that is news."""
        if nodes == self.nodes and by_listener == self._by_listener:
            return False
        self.nodes = dict(nodes)
        self._by_listener = by_listener
        for topic in self._topics.values():
            topic.encoded.clear()  # what is said of a leader depends on whether it lives
        self.version += 1
        return True

    def nodes_of(self, listener: str) -> Mapping[int, Node]:
        """The brokers that can be reached by a listener of that name."""
        return self._by_listener.get(listener, {})

    def is_reachable(self, broker_id: int, listener: str) -> bool:
        """By clients of that listener."""
        return broker_id in (self.nodes_of(listener) if self._by_listener else self.nodes)

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicInfo]:
        """Topics by name."""
        return iter([self._topics[name] for name in sorted(self._topics)])

    def get(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def has_partition(self, name: str, index: int) -> bool:
        topic = self._topics.get(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def get_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics[name]

    def twin_of(self, name: str) -> str | None:
        """The topic that has the same name in metrics: itself, or one that differs in "." and "_"."""
        return self._by_metric_name.get(metric_name(name))

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
        known = self._topics.get(topic.name)
        if known is not None and known.topic_id != topic.topic_id:
            self._names.pop(known.topic_id, None)
        self._topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._by_metric_name[metric_name(topic.name)] = topic.name
        self.version += 1

    def remove(self, name: str) -> None:
        topic = self._topics.pop(name)
        self._names.pop(topic.topic_id, None)
        self._by_metric_name.pop(metric_name(name), None)
        self.version += 1
