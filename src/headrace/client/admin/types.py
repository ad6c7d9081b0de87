"""The values that the admin client takes and returns.

If Kafka answers each item of a request separately, the method returns :class:`Results`: a dict that has the value or
the exception of each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar
from uuid import UUID

from headrace.client.errors import HeadraceError
from headrace.client.types import Node, TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class Results(dict[K, V | HeadraceError]):
    """The result of each item: its value, or the exception that says why there is none."""

    @property
    def ok(self) -> dict[K, V]:
        return {key: value for key, value in self.items() if not isinstance(value, HeadraceError)}

    @property
    def errors(self) -> dict[K, HeadraceError]:
        return {key: value for key, value in self.items() if isinstance(value, HeadraceError)}

    def value(self, key: K) -> V:
        """Returns the value of an item, or raises its exception."""
        value = self[key]
        if isinstance(value, HeadraceError):
            raise value
        return value

    def all(self) -> dict[K, V]:
        """Returns the values of all items, or raises the first exception."""
        for error in self.errors.values():
            raise error
        return self.ok


# -- topics


class NewTopic(NamedTuple):
    """A topic to create. -1 means the broker's default. ``assignments`` (partition: broker ids) replaces both."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, object] = {}
    assignments: Mapping[int, Sequence[int]] = {}


class CreatedTopic(NamedTuple):
    """A topic that was created. Older brokers return only its name."""

    name: str
    id: UUID | None
    num_partitions: int
    replication_factor: int
    configs: dict[str, str | None]


class TopicListing(NamedTuple):
    """A topic in a list of topics."""

    name: str
    id: UUID | None
    is_internal: bool


class PartitionDescription(NamedTuple):
    """A partition. Replicas are broker ids; a ``leader_id`` of -1 means no leader.

    The last two fields are None unless the broker has eligible leader replicas (KIP-966).
    """

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_eligible_replicas: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    """A topic with its partitions."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


# -- settings

ResourceKind = Literal["topic", "broker", "broker_logger", "client_metrics", "group"]
ConfigOperation = Literal["set", "delete", "append", "subtract"]


class ConfigResource(NamedTuple):
    """Something that has settings. The name of a broker is its id; ``""`` means the defaults of all brokers."""

    kind: ResourceKind
    name: str


class ConfigSynonym(NamedTuple):
    """The value of a lower layer, which counts if the layers above are removed."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A setting. ``source`` is Kafka's name of the layer that has the value, such as DYNAMIC_TOPIC_CONFIG.

    The value of a sensitive setting is None.
    """

    name: str
    value: str | None
    source: str
    type: str = "UNKNOWN"
    is_read_only: bool = False
    is_sensitive: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


class ConfigChange(NamedTuple):
    """One change of a setting. ``append`` and ``subtract`` are for settings that are lists."""

    name: str
    value: str | None = None
    operation: ConfigOperation = "set"


# -- records

#: A place in a partition: a name, or a time in milliseconds (the first record at or after it).
OffsetSpec = Literal["earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"] | int
Isolation = Literal["read_uncommitted", "read_committed"]


class ListedOffset(NamedTuple):
    """An offset that was looked up. An offset of -1 means none; a timestamp of -1 means unknown."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class ProducerState(NamedTuple):
    """A producer that a partition remembers. -1 means none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


# -- the cluster


class ClusterDescription(NamedTuple):
    """The brokers of a cluster."""

    cluster_id: str
    controller: Node | None
    brokers: tuple[Node, ...]
    fenced_broker_ids: frozenset[int] = frozenset()


class VersionRange(NamedTuple):
    """A range of versions. Both ends belong to it."""

    lowest: int
    highest: int


class Features(NamedTuple):
    """The features that brokers support, and those that the cluster has finalized, with the epoch of the latter."""

    supported: dict[str, VersionRange]
    finalized: dict[str, VersionRange]
    finalized_epoch: int | None


class BrokerVersions(NamedTuple):
    """The versions that a broker supports, by API key."""

    broker: Node
    apis: dict[int, VersionRange]


class ReplicaSize(NamedTuple):
    """The size of a partition in a log dir. A future replica is being copied to this log dir."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A log dir of a broker. ``error`` says why it cannot be used. A size of -1 is not known."""

    path: str
    error: HeadraceError | None
    replicas: dict[TopicPartition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    broker_id: int


class Reassignment(NamedTuple):
    """A partition that is being moved. All fields are broker ids."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


ElectionKind = Literal["preferred", "unclean"]


# -- groups


class GroupListing(NamedTuple):
    """A group in a list of groups. ``type`` and ``state`` are Kafka's words; "" from older brokers."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member of a group. A member of the consumer protocol has an epoch and a target assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    subscribed_topics: tuple[str, ...] = ()
    subscribed_pattern: str | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    rack_id: str | None = None
    #: Whether it uses the classic protocol in a group of the consumer protocol; None if that is not known.
    is_classic: bool | None = None


class GroupDescription(NamedTuple):
    """A group. ``assignor`` is the assignment strategy. Only groups of the consumer protocol have epochs."""

    group_id: str
    type: Literal["Classic", "Consumer"]
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    coordinator: Node
    group_epoch: int | None = None
    assignment_epoch: int | None = None


# -- transactions


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """A transactional id. ``start_time_ms`` is None while it has no open transaction."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch of a transactional id."""

    producer_id: int
    producer_epoch: int
