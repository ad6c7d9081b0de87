"""The role of a broker: it runs alone, or it is a member of a cluster. One interface with two implementations.

``LoneBroker`` (``lone/lone_broker.py``) keeps the znode tree in its first data folder and leads all partitions.
``ClusterMember`` (``cluster/cluster_member.py``) shares a ZooKeeper with other brokers and replicates partitions.
:func:`choose_role` is the only place that decides between the two, and this is the only module that imports both. No
handler and no service asks which role a broker has: they use the objects that the role provides
(:attr:`ClusterRole.topics`, :attr:`ClusterRole.followers`, ...).

A lone broker is not a cluster of one, because that would be more expensive. Measured as best of 15 alternating runs:
starting takes 383 ms of CPU time instead of 236 ms (+62 %; 146 ms of it are imports of the controller, of replication
and of the client), and a Produce request with acks=1 takes 43 µs instead of 35 µs.

The broker calls the methods of the life cycle in this order: ``identify`` before it opens the logs, ``load`` after it
has opened the logs, ``register`` when it can serve all requests; later ``hand_over`` while it still serves,
``unregister`` when it serves no more, and ``close`` when the logs are closed. After a failed start it calls only
``close``, whatever was called before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.control_requests import ControlRequests
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.coordinators.internal_topics import InternalTopics
    from headrace.broker.coordinators.participants import TransactionParticipants
    from headrace.broker.coordinators.placement import CoordinatorPlacement
    from headrace.broker.coordinators.producer_ids import ProducerIds
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.data_folders import DataFolders
    from headrace.broker.metadata_cache import MetadataCache, Node
    from headrace.broker.metrics.role_metrics import RoleMetrics
    from headrace.broker.network.connection import Connection
    from headrace.broker.purgatories import Purgatories
    from headrace.broker.replicas.followers import Followers
    from headrace.broker.runtime import BrokerRuntime
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.broker.topics import Topics
    from headrace.controller.decisions.leader_elections import ElectionStrategy
    from headrace.controller.decisions.reassignments import Assignment
    from headrace.coordination.interface import Coordination
    from headrace.coordination.znodes import TopicPartition
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog
    from headrace.protocol.errors import KafkaError
    from headrace.replication.partitions import Partitions


class RoleContext(NamedTuple):
    """The parts of its broker that a role uses."""

    config: BrokerConfig
    runtime: BrokerRuntime
    folders: DataFolders
    #: The addresses that the listeners are bound to, by the listeners' names.
    endpoints: Mapping[str, tuple[str, int]]
    metadata: MetadataCache
    partitions: Partitions
    purgatories: Purgatories
    group_configs: GroupConfigs
    scram_users: ScramUsers
    client_metrics: Subscriptions
    internal_topics: InternalTopics
    commit_waits: CommitWaits
    #: Connects to the cluster's ZooKeeper. Raises CoordinationError.
    connect_to_tree: Callable[[], Awaitable[Coordination]]
    #: Is called with a topic, a partition and whether this broker leads the partition now.
    on_leadership_changed: Callable[[str, int, bool], object]
    #: Is called before a log is deleted.
    on_log_deleted: Callable[[PartitionLog], object]
    #: Is called with the name of each topic that was deleted.
    on_topic_deleted: Callable[[str], object]


class PartitionController(Protocol):
    """The requests of clients to a controller: elections and reassignments of partitions."""

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, how: ElectionStrategy
    ) -> dict[TopicPartition, KafkaError | None]: ...

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_count: bool = True
    ) -> dict[TopicPartition, KafkaError | None]: ...

    def reassignments(self) -> Mapping[TopicPartition, Assignment]: ...


class ClusterRole(ABC):
    """The parts of a broker that depend on whether there are other brokers."""

    #: Whether this broker answers the requests that a controller sends to brokers (API keys 4 to 7).
    serves_control_apis: bool

    # ``identify`` or ``load`` sets these.
    coordination: Coordination
    producer_ids: ProducerIds
    topics: Topics
    followers: Followers
    control_requests: ControlRequests
    #: The controller in this process. In a cluster the controller of another broker may be the active one.
    controller: PartitionController

    # -- life cycle

    @abstractmethod
    async def identify(self) -> None:
        """Settles the broker's id (in the config) and the cluster's id (in the metadata cache).

        :raises StartError: if the broker may not start under this id.
        """

    @abstractmethod
    async def load(self, logs: LogManager) -> None:
        """Reads what the znode tree says about topics and settings, and prepares to serve partitions.

        :raises StartError: if the tree cannot be read.
        """

    @abstractmethod
    async def register(self) -> None:
        """Makes this broker known to the other brokers. Returns when this broker knows them, too.

        :raises StartError: if another broker is registered under the same id.
        """

    @abstractmethod
    async def hand_over(self) -> None:
        """Moves the leadership of partitions to other brokers."""

    @abstractmethod
    async def unregister(self) -> None:
        """Leaves the cluster: no replication and no registration from now on."""

    @abstractmethod
    async def close(self) -> None:
        """Releases everything that is still open."""

    # -- what handlers and services use

    @abstractmethod
    def nodes_seen_by(self, connection: Connection) -> list[Node]:
        """The live brokers, with the addresses that a client of this connection's listener must use."""

    @abstractmethod
    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The settings of one topic, as far as this broker has read them."""

    @abstractmethod
    def placement(self, internal_topic: str) -> CoordinatorPlacement:
        """Makes the object that places the shards of a coordinator on brokers."""

    @abstractmethod
    def participants(self, service: TransactionService) -> TransactionParticipants:
        """Makes the object that reaches the partitions of transactions."""

    @abstractmethod
    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Stores settings of one broker (``name`` is its id) or of all brokers (``name`` is empty). The caller has
        checked the settings."""

    @abstractmethod
    async def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Stores settings of one group. The caller has checked the settings."""

    @abstractmethod
    async def set_client_metrics(self, name: str, configs: Mapping[str, str]) -> None:
        """Stores a subscription of client metrics. The caller has checked the settings."""

    @abstractmethod
    async def change_user_configs(self, user: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Stores what ``change`` makes of the settings of a user. ``change`` may raise; then nothing is stored."""

    # -- what the broker reports

    @abstractmethod
    async def refresh_topics(self) -> None:
        """Applies changed broker settings that are defaults of topic settings."""

    @abstractmethod
    async def addresses_changed(self) -> None:
        """Registers the present addresses of this broker, if it is registered."""

    @abstractmethod
    async def log_dir_failed(self) -> None:
        """Stops serving the partitions of log dirs that went offline."""

    # -- metrics

    @abstractmethod
    def metrics(self) -> RoleMetrics:
        """The metrics that depend on whether there are other brokers."""


def choose_role(context: RoleContext) -> ClusterRole:
    """Makes the role that the setting ``zookeeper.connect`` asks for. Each role imports its modules only when it is
    chosen, because a lone broker starts faster without those of a cluster."""
    if context.config.is_in_cluster:
        from headrace.broker.cluster.cluster_member import ClusterMember

        return ClusterMember(context)
    from headrace.broker.lone.lone_broker import LoneBroker

    return LoneBroker(context)


async def connect_to_tree(config: BrokerConfig) -> Coordination:
    """Opens a session with the cluster's ZooKeeper.

    :raises CoordinationError: if ZooKeeper does not answer.
    :raises StartError: if the settings of the connection cannot be used.
    """
    from headrace.broker.cluster.zookeeper_session import connect_to_zookeeper

    return await connect_to_zookeeper(config)
