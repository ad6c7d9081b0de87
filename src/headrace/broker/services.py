"""The complete list of what a handler may ask for.

A handler names the services that it needs as parameters: ``async def handle(request, partitions, metadata)``. A
parameter has the name and the type of a field of :class:`Services`. The dispatcher looks the parameters up once, when
it loads the handler (``network/handler_binding.py``). ``broker.py`` builds the one instance, when all services are
there and before the first connection is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from headrace.broker.authentication.scram_users import ScramUsers
    from headrace.broker.authentication.token_service import TokenService
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.cluster_role import PartitionController
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.configs.loggers import Loggers
    from headrace.broker.control_requests import ControlRequests
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.producer_ids import ProducerIds
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.current_leaders import CurrentLeaders
    from headrace.broker.fetch_sessions import FetchSessions
    from headrace.broker.maintenance.relocations import Relocations
    from headrace.broker.metadata_cache import MetadataCache, Node
    from headrace.broker.metrics.counters import Metrics
    from headrace.broker.network.connection import Connection
    from headrace.broker.quotas.client_quotas import ClientQuotas
    from headrace.broker.quotas.controller_mutations import ControllerMutations
    from headrace.broker.quotas.stored_quotas import StoredQuotas
    from headrace.broker.quotas.throttling import Throttling
    from headrace.broker.replicas.followers import Followers
    from headrace.broker.telemetry.subscriptions import Subscriptions
    from headrace.broker.telemetry.telemetry import Telemetry
    from headrace.broker.thread_pool import RunBlocking
    from headrace.broker.topics import Topics
    from headrace.log.log_manager import LogManager
    from headrace.protocol.api import Api
    from headrace.replication.partitions import Partitions
    from headrace.runtime.clock import Clock
    from headrace.runtime.purgatory import Purgatory

T = TypeVar("T")


class ReadRecords(Protocol):
    """Runs a function that reads the records of a batch, given the number of records in the batch's header."""

    async def __call__(self, record_count: int, function: Callable[..., T], *arguments: object) -> T: ...


class NodesSeenBy(Protocol):
    """The brokers, with the addresses that the client of a connection can use."""

    def __call__(self, connection: Connection) -> list[Node]: ...


class ConfigStore(Protocol):
    """Stores settings that were checked before."""

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Stores settings of this broker, or with an empty name of all brokers."""

    async def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None: ...

    async def set_client_metrics(self, name: str, configs: Mapping[str, str]) -> None:
        """Stores a subscription of client metrics. Without settings the subscription is deleted."""

    async def change_user_configs(self, user: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Stores what ``change`` makes of the settings of a user. ``change`` may raise; then nothing is stored."""


class Services(NamedTuple):
    broker_id: int
    #: The APIs that this broker answers.
    served_apis: tuple[Api, ...]
    config: BrokerConfig
    config_store: ConfigStore
    #: The log levels of this process.
    loggers: Loggers
    #: The users that log in by SCRAM.
    scram_users: ScramUsers
    #: The limits of clients that are in force on this broker.
    client_quotas: ClientQuotas
    #: Changes the limits of clients in the tree.
    stored_quotas: StoredQuotas
    clock: Clock
    metrics: Metrics
    #: Counts what clients use, and says for how long their connections are muted.
    throttling: Throttling
    #: Limits how many partitions clients create and delete.
    controller_mutations: ControllerMutations
    #: Decides what the client of a connection may do.
    authorizer: Authorizer
    #: Creates and changes delegation tokens.
    delegation_tokens: TokenService
    #: The brokers, topics and leaders of the cluster, as the controller last sent them.
    metadata: MetadataCache
    nodes_seen_by: NodesSeenBy
    #: Names the leader of a partition to clients that sent a request to the wrong broker.
    current_leaders: CurrentLeaders
    #: Creates, changes and deletes topics.
    topics: Topics
    #: Elects leaders and reassigns partitions. In a cluster the controller of another broker may be the active one.
    controller: PartitionController
    #: Carries out what the active controller asks of this broker.
    control_requests: ControlRequests
    #: The replicas on this broker.
    partitions: Partitions
    #: The brokers that replicate the partitions that this broker leads.
    followers: Followers
    #: Waits until appends are committed.
    commit_waits: CommitWaits
    logs: LogManager
    #: Replicas that move to another log dir of this broker.
    relocations: Relocations
    groups: GroupService
    group_configs: GroupConfigs
    #: What the broker asks clients for, and the metrics that clients have pushed (KIP-714).
    client_metrics: Subscriptions
    telemetry: Telemetry
    transactions: TransactionService
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    #: Fetch requests that wait for records, by topic and partition.
    delayed_fetch: Purgatory[tuple[str, int]]
    #: DeleteRecords requests that wait for the replicas.
    delayed_delete_records: Purgatory[tuple[str, int]]
    run_blocking: RunBlocking
    #: Runs functions that decompress records, one after the other.
    read_records: ReadRecords
