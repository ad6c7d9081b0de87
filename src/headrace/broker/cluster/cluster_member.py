"""A broker that is a member of a cluster: its parts beside logs and listeners, and their start and stop order.

Start: the broker opens a session with ZooKeeper, settles its ids (``registration.py``) and reads all settings
(``config_changes.py``). When the logs are open and connections are accepted, it starts its replicas, registers, and
starts its controller, which may become the active one. The other brokers learn of this broker by its registration. This
broker learns of the others by the first UpdateMetadata request. Then it is ready, and answers the clients that have
connected before.

When the session is lost, the controller resigns. In the next session the controller first registers this broker again,
and then takes part in the election. In between the other brokers regard this broker as dead, and its ``broker_epoch``
is outdated.

Stop: the controller moves the leaderships to other brokers (ControlledShutdown) while this broker still serves. Then
the fetchers and the session end. Only then are the logs closed: flushing takes time, in which no leader should wait for
this follower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.authentication.scram_users import Change
from headrace.broker.authentication.scram_users import entity_of as entity_of_user
from headrace.broker.cluster.config_changes import ConfigChanges
from headrace.broker.cluster.control_requests import ClusterControlRequests
from headrace.broker.cluster.controlled_shutdown import ControlledShutdown
from headrace.broker.cluster.controller_channel import ControllerChannel
from headrace.broker.cluster.controller_fence import ControllerFence
from headrace.broker.cluster.coordinator_placement import ClusterPlacement
from headrace.broker.cluster.link_security import link_security
from headrace.broker.cluster.links import Address, Links
from headrace.broker.cluster.metadata_updates import MetadataUpdates
from headrace.broker.cluster.registration import ClusterRegistration
from headrace.broker.cluster.topics import ClusterTopics
from headrace.broker.cluster.unenforced_rules import warn_of_unenforced_rules
from headrace.broker.cluster.zookeeper_session import ZookeeperSession
from headrace.broker.cluster_role import ClusterRole
from headrace.broker.configs.group_overrides import entity_of
from headrace.broker.coordinators.producer_ids import ProducerIds
from headrace.broker.replicas.context import ReplicaContext
from headrace.broker.replicas.replicas import ReplicaManager
from headrace.broker.start_error import StartError
from headrace.broker.telemetry.subscriptions import ENTITY_TYPE as CLIENT_METRICS
from headrace.broker.telemetry.subscriptions import entity_name
from headrace.controller.controller import Controller, ControllerSettings
from headrace.coordination.interface import Coordination, CoordinationError, NodeExistsError
from headrace.coordination.paths import DEFAULT_ENTITY
from headrace.coordination.znodes import MalformedZnodeError
from headrace.properties import ConfigError

if TYPE_CHECKING:
    from headrace.broker.cluster.participants import ClusterParticipants
    from headrace.broker.cluster_role import RoleContext
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.metadata_cache import Node
    from headrace.broker.metrics.role_metrics import RoleMetrics
    from headrace.broker.network.connection import Connection
    from headrace.broker.thread_pool import RunBlocking
    from headrace.client.security.connection_security import ConnectionSecurity
    from headrace.log.log_manager import LogManager

logger = getLogger(__name__)

_NO_SESSION = -1
_UPDATE_AGAIN_AFTER_S = 1.0
#: How long a registered broker waits for its first UpdateMetadata request before it serves clients all the same.
_FIRST_METADATA_WAIT_S = 15.0


class ClusterMember(ClusterRole):
    serves_control_apis = True

    # ``identify`` sets these.
    registration: ClusterRegistration
    configs: ConfigChanges
    # ``load`` sets these.
    topics: ClusterTopics
    links: Links
    channel: ControllerChannel
    replicas: ReplicaManager
    session: ZookeeperSession
    controller: Controller

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        #: Whether ``load`` has made all parts, and ``unregister`` has not stopped them.
        self.is_open = False
        self.fence = ControllerFence(lambda: self.registration.broker_epoch)
        self._has_metadata = asyncio.Event()
        self._session: Coordination | None = None

    # -- start

    async def identify(self) -> None:
        context, config = self._context, self._context.config
        try:
            self._session = self.coordination = await context.connect_to_tree()
            self.registration = ClusterRegistration(
                config, context.folders, context.endpoints, self.coordination, context.runtime.clock
            )
            context.metadata.cluster_id = await self.registration.identify()
            self.configs = ConfigChanges(
                config,
                context.group_configs,
                context.scram_users,
                context.client_metrics,
                self.coordination,
                context.runtime.clock,
                on_topic_changed=self._topic_configured,
                on_unclean_election_changed=self._unclean_election_changed,
            )
            await self.configs.load()
            if not config.str("authorizer.class.name"):
                await warn_of_unenforced_rules(self.coordination)
        except (CoordinationError, MalformedZnodeError) as error:
            raise StartError(str(error)) from None
        self.producer_ids = ProducerIds(self.coordination, config.int("broker.id"))

    async def load(self, logs: LogManager) -> None:
        try:
            await self.registration.remove_earlier_registration()
        except CoordinationError as error:
            raise StartError(f"cannot read the earlier registration of this broker: {error}") from None
        context, config, clock = self._context, self._context.config, self._context.runtime.clock
        broker_id = config.int("broker.id")
        security = _link_security(config, context.runtime.run_blocking)
        self.links = Links(
            self._address_of,
            clock,
            client_id=f"broker-{broker_id}",
            request_timeout_ms=config.int("replica.socket.timeout.ms"),
            security=security,
        )
        self.topics = ClusterTopics(
            broker_id, config, self.coordination, context.metadata, self.configs, self.links, context.runtime.timer
        )
        self.replicas = ReplicaManager(self._replica_context(broker_id, logs))
        self.followers = self.replicas.sessions
        self.channel = ControllerChannel(
            listener=config.listeners.inter_broker,
            client_id=f"controller-{broker_id}",
            timeout_ms=config.int("controller.socket.timeout.ms"),
            security=security,
        )
        self.controller = Controller(
            broker_id,
            self.coordination,
            clock,
            context.runtime.timer,
            self.channel,
            _controller_settings(config),
            register=self._register,
        )
        self.channel.on_response = self.controller.on_response
        self.control_requests = ClusterControlRequests(
            self.registration, self.replicas, self._metadata_updates(), self.controller
        )
        self.session = ZookeeperSession(self.coordination)
        self.is_open = True

    def _replica_context(self, broker_id: int, logs: LogManager) -> ReplicaContext:
        context = self._context
        return ReplicaContext(
            broker_id=broker_id,
            config=context.config,
            runtime=context.runtime,
            metadata=context.metadata,
            partitions=context.partitions,
            logs=logs,
            purgatories=context.purgatories,
            coordination=self.coordination,
            configs=self.configs,
            links=self.links,
            fence=self.fence,
            on_leadership_changed=context.on_leadership_changed,
            on_log_deleted=context.on_log_deleted,
        )

    def _metadata_updates(self) -> MetadataUpdates:
        return MetadataUpdates(
            self._context.metadata,
            self.fence,
            self._context.config.listeners.inter_broker,
            on_brokers_changed=self.replicas.brokers_changed,
            on_topic_deleted=self._topic_deleted,
            on_updated=self._metadata_updated,
        )

    async def register(self) -> None:
        self.replicas.start()
        self.configs.start()
        self.session.start()
        await self.controller.start(registered_in=await self._register_first())
        try:
            await asyncio.wait_for(self._has_metadata.wait(), _FIRST_METADATA_WAIT_S)
        except TimeoutError:
            logger.warning("no controller has sent the metadata of the cluster yet; clients are served all the same")

    async def _register_first(self) -> int:
        """The session in which this broker is registered. If it was lost meanwhile, the current session is another."""
        session_id = self.coordination.session_id
        try:
            await self._register()
        except NodeExistsError:
            broker_id = self._context.config.int("broker.id")
            raise StartError(f"another broker with the id {broker_id} has just registered") from None
        except CoordinationError as error:
            logger.warning("the broker will register in its next session: %s", error)
            return _NO_SESSION
        return session_id

    async def _register(self) -> None:
        await self.registration.register()

    # -- what handlers and services use

    def nodes_seen_by(self, connection: Connection) -> list[Node]:
        return list(self._context.metadata.nodes_of(connection.listener_name).values())

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        return self.configs.of_topic(topic)

    def placement(self, internal_topic: str) -> ClusterPlacement:
        context = self._context
        return ClusterPlacement(
            internal_topic, self.coordination, context.metadata, context.partitions, context.commit_waits
        )

    def participants(self, service: TransactionService) -> ClusterParticipants:
        from headrace.broker.cluster.markers import ClusterMarkers
        from headrace.broker.cluster.participants import ClusterParticipants

        context, broker_id = self._context, self._context.config.int("broker.id")
        markers = ClusterMarkers(
            broker_id, context.metadata, self.coordination, self.links, context.commit_waits, service.markers
        )
        return ClusterParticipants(broker_id, context.metadata, context.partitions, self.links, service, markers)

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        await self.configs.write("brokers", name or DEFAULT_ENTITY, configs)

    async def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        await self.configs.write("groups", entity_of(group_id), configs)

    async def set_client_metrics(self, name: str, configs: Mapping[str, str]) -> None:
        await self.configs.write(CLIENT_METRICS, entity_name(name), configs)

    async def change_user_configs(self, user: str, change: Change) -> None:
        await self.configs.change_user(entity_of_user(user), change)

    # -- events

    async def refresh_topics(self) -> None:
        self.replicas.defaults_changed()

    async def addresses_changed(self) -> None:
        while self.is_open:
            try:
                await self.registration.update()
                return
            except CoordinationError as error:
                logger.warning("the present addresses cannot be registered now: %r", error)
            await asyncio.sleep(_UPDATE_AGAIN_AFTER_S)

    async def log_dir_failed(self) -> None:
        self.replicas.log_dirs_failed()

    def metrics(self) -> RoleMetrics:
        from headrace.broker.cluster.member_metrics import MemberMetrics  # imported only if metrics are served
        from headrace.broker.metrics.role_metrics import LocalMetrics

        return MemberMetrics(self) if self.is_open else LocalMetrics()

    def _address_of(self, broker_id: int) -> Address | None:
        node = self._context.metadata.nodes.get(broker_id)
        return None if node is None or node.port < 0 else (node.host, node.port)

    def _topic_configured(self, topic: str, configs: Mapping[str, str]) -> None:
        if self.is_open:
            self.replicas.topic_configured(topic, configs)
            self.controller.unclean_election_changed(topic)

    def _unclean_election_changed(self) -> None:
        if self.is_open:
            self.controller.unclean_election_changed()

    def _topic_deleted(self, topic: str) -> None:
        self.configs.topic_deleted(topic)
        self.replicas.logs.topic_deleted(topic)
        self._context.on_topic_deleted(topic)

    def _metadata_updated(self, topics: list[str]) -> None:
        if self._context.config.int("broker.id") in self._context.metadata.nodes:
            self._has_metadata.set()
        self.topics.metadata_changed(topics)

    # -- stop

    async def hand_over(self) -> None:
        config = self._context.config
        if config.bool("controlled.shutdown.enable"):
            self.replicas.begin_hand_over()
            shutdown = ControlledShutdown(
                config, self._context.metadata, self.coordination, self.registration, self.links, self.controller
            )
            await shutdown.hand_over(is_connected=lambda: self.session.is_connected)

    async def unregister(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        await self.replicas.stop()
        await self.controller.stop()
        await self.coordination.close()
        self.channel.close()
        await self.channel.wait_closed()
        await self.configs.stop()
        await self.links.close()

    async def close(self) -> None:
        await self.unregister()
        if self._session is not None:
            await self._session.close()


def _link_security(config: BrokerConfig, run_blocking: RunBlocking) -> ConnectionSecurity:
    try:
        return link_security(config, run_blocking)
    except ConfigError as error:
        raise StartError(str(error)) from None


def _controller_settings(config: BrokerConfig) -> ControllerSettings:
    return ControllerSettings(
        auto_leader_rebalance_enable=config.bool("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_seconds=config.int("leader.imbalance.check.interval.seconds"),
        leader_imbalance_per_broker_percentage=config.int("leader.imbalance.per.broker.percentage"),
        delete_topic_enable=config.bool("delete.topic.enable"),
        is_unclean_by_default=lambda: config.bool("unclean.leader.election.enable"),
    )
