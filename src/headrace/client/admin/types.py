"""What the admin client takes and gives: plain values.

Where Kafka answers each item on its own, so do we: such a method gives :class:`Results`, a dict in which each item has
its value or its exception.
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
    """What became of each item: its value, or the exception that says why there is none."""

    @property
    def ok(self) -> dict[K, V]:
        return {key: value for key, value in self.items() if not isinstance(value, HeadraceError)}

    @property
    def errors(self) -> dict[K, HeadraceError]:
        return {key: value for key, value in self.items() if isinstance(value, HeadraceError)}

    def value(self, key: K) -> V:
        """The value of an item; its exception is raised."""
        value = self[key]
        if isinstance(value, HeadraceError):
            raise value
        return value

    def all(self) -> dict[K, V]:
        """The values of all items; if one failed, its exception is raised."""
        for error in self.errors.values():
            raise error
        return self.ok


# -- topics


class NewTopic(NamedTuple):
    """A topic to be made. -1 leaves a number to the broker; ``assignments`` (partition: broker ids) replaces both."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, object] = {}
    assignments: Mapping[int, Sequence[int]] = {}


class CreatedTopic(NamedTuple):
    """A topic as it was made. Older brokers tell its name only."""

    name: str
    id: UUID | None
    num_partitions: int
    replication_factor: int
    configs: dict[str, str | None]


class TopicListing(NamedTuple):
    name: str
    id: UUID | None
    is_internal: bool


class PartitionDescription(NamedTuple):
    """A partition; replicas are broker ids, ``leader_id`` -1 is none. The last two are None unless the broker keeps
    track of replicas that may lead though they are not in sync (KIP-966)."""

    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_eligible_replicas: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


# -- settings

ResourceKind = Literal["topic", "broker", "broker_logger", "client_metrics", "group"]
ConfigOperation = Literal["set", "delete", "append", "subtract"]


class ConfigResource(NamedTuple):
    """Something that has settings. A broker's name is its id; the broker ``""`` stands for the defaults of all."""

    kind: ResourceKind
    name: str


class ConfigSynonym(NamedTuple):
    """A layer below, that would count if those above it were not there."""

    name: str
    value: str | None
    source: str


class ConfigEntry(NamedTuple):
    """A setting. ``source`` is Kafka's name of the layer that the value comes from, such as DYNAMIC_TOPIC_CONFIG; the
    value of one that is sensitive is None."""

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
    """One change of a setting: ``append`` and ``subtract`` are for those that are lists."""

    name: str
    value: str | None = None
    operation: ConfigOperation = "set"


# -- records

#: Where in a partition: a name, or a time in milliseconds (the first record at or after it).
OffsetSpec = Literal["earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"] | int
Isolation = Literal["read_uncommitted", "read_committed"]


class ListedOffset(NamedTuple):
    """An offset that was asked for; -1 is none. A timestamp of -1 is not known."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class ProducerState(NamedTuple):
    """A producer that a partition remembers. -1 is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


# -- the cluster


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller: Node | None
    brokers: tuple[Node, ...]
    fenced_broker_ids: frozenset[int] = frozenset()


class VersionRange(NamedTuple):
    lowest: int
    highest: int


class Features(NamedTuple):
    """What brokers can do (``supported``), and what the cluster has agreed on (``finalized``, as of an epoch)."""

    supported: dict[str, VersionRange]
    finalized: dict[str, VersionRange]
    finalized_epoch: int | None


class BrokerVersions(NamedTuple):
    """What a broker speaks: the versions of each API, by key."""

    broker: Node
    apis: dict[int, VersionRange]


class ReplicaSize(NamedTuple):
    """A partition's files in a log dir. A future one is a copy on its way to this log dir."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A folder of a broker. ``error`` says why it cannot be used; sizes of -1 are not known."""

    path: str
    error: HeadraceError | None
    replicas: dict[TopicPartition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1


class TopicPartitionReplica(NamedTuple):
    topic: str
    partition: int
    broker_id: int


class Reassignment(NamedTuple):
    """A partition that is being moved; all are broker ids."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


ElectionKind = Literal["preferred", "unclean"]


# -- groups


class GroupListing(NamedTuple):
    """``type`` and ``state`` are Kafka's words (Classic, Consumer; Empty, Stable, ...); "" from older brokers."""

    group_id: str
    protocol_type: str
    state: str
    type: str


class GroupMember(NamedTuple):
    """A member. Those of the consumer protocol have an epoch, and an assignment that they are on their way to."""

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
    #: Whether it speaks the classic protocol in a group of the consumer protocol; None where that is not told.
    is_classic: bool | None = None


class GroupDescription(NamedTuple):
    """A group. ``assignor`` is what it shares out partitions by; epochs are those of the consumer protocol."""

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
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """A transactional id; ``start_time_ms`` is None while it has no transaction."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int
