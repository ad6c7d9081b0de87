"""Holds what this broker knows of the cluster: brokers, topics, leaders. Metadata requests are answered from here.

Any change replaces the whole :class:`TopicInfo` of a topic. So a topic that a handler holds never changes, and the
encoded bytes of its answer can be kept with it until the next change (a topic of 10,000 partitions takes long to
encode).

In a cluster the controller sends all of this by UpdateMetadata (``cluster/metadata_updates.py``). A broker has one
address per listener, and a client sees the addresses of the listener that it has connected to.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from headrace.controller.topic_rules import metric_name
from headrace.protocol.errors import UnknownTopicId, UnknownTopicOrPartition

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
NO_LEADER = -1


class Node(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicInfo:
    """A topic and its partitions. Only ``encoded`` changes."""

    __slots__ = ("encoded", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, partitions: tuple[PartitionInfo, ...]) -> None:
        self.name: Final = name
        self.topic_id: Final = topic_id
        self.partitions: Final = partitions
        #: Encoded answers. The handler that encodes them chooses the keys.
        self.encoded: dict[object, bytes] = {}

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        #: Grows with every change of topics or brokers.
        self.version = 0
        #: The live brokers, with the addresses that other brokers use.
        self.nodes: dict[int, Node] = {}
        #: The live brokers by listener. Empty on a lone broker.
        self._by_listener: Mapping[str, Mapping[int, Node]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        self._by_metric_name: dict[str, str] = {}

    def set_nodes(self, nodes: Mapping[int, Node], by_listener: Mapping[str, Mapping[int, Node]]) -> bool:
        """Sets the live brokers. Returns whether they have changed."""
        if nodes == self.nodes and by_listener == self._by_listener:
            return False
        self.nodes = dict(nodes)
        self._by_listener = by_listener
        for topic in self._topics.values():
            topic.encoded.clear()  # an answer depends on whether the leader is alive
        self.version += 1
        return True

    def nodes_of(self, listener: str) -> Mapping[int, Node]:
        """The live brokers that have a listener of this name."""
        return self._by_listener.get(listener, {})

    def is_reachable(self, broker_id: int, listener: str) -> bool:
        """Whether clients of a listener can reach the broker."""
        return broker_id in (self.nodes_of(listener) if self._by_listener else self.nodes)

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[TopicInfo]:
        """Iterates over the topics in the order of their names."""
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
        """The topic with the same name in metrics: this one, or one whose name differs in "." and "_" only."""
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
