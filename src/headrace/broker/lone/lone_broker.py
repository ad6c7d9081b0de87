"""A broker without ZooKeeper: it keeps the znode tree in its first data folder, and is its own controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.authentication.scram_users import Change, change_user
from headrace.broker.authentication.scram_users import entity_of as entity_of_user
from headrace.broker.cluster_role import ClusterRole
from headrace.broker.configs.group_overrides import entity_of
from headrace.broker.configs.topic import validate_topic
from headrace.broker.control_requests import NoControlRequests
from headrace.broker.coordinators.producer_ids import ProducerIds
from headrace.broker.lone.controller import LoneController
from headrace.broker.lone.coordinator_placement import LonePlacement
from headrace.broker.lone.dynamic_configs import LoneDynamicConfigs
from headrace.broker.lone.registration import LoneRegistration
from headrace.broker.lone.topic_adoption import TopicAdoption
from headrace.broker.lone.topic_host import TopicHost
from headrace.broker.lone.topics import LoneTopics
from headrace.broker.metadata_cache import Node
from headrace.broker.replicas.followers import NoFollowers
from headrace.broker.start_error import StartError
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import CoordinationError
from headrace.coordination.tree.host import TreeHost

if TYPE_CHECKING:
    from headrace.broker.cluster_role import RoleContext
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.lone.participants import LoneParticipants
    from headrace.broker.metrics.role_metrics import RoleMetrics
    from headrace.broker.network.connection import Connection
    from headrace.log.log_manager import LogManager

#: The folder of the znode tree, in the first data folder.
COORDINATION_FOLDER = ".coordination"


class LoneBroker(ClusterRole):
    serves_control_apis = False

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        self._tree: TreeHost | None = None
        #: None until :meth:`load` has opened the tree.
        self._topics: LoneTopics | None = None
        self.followers = NoFollowers()
        self.control_requests = NoControlRequests()
        self.controller = LoneController(context.metadata)

    # -- life cycle

    async def identify(self) -> None:
        """The data folders say which broker this is. New data folders get the setting's id, or 0."""
        if self._context.config.broker_id is None:
            self._context.config.set_broker_id(self._context.folders.stored_broker_id or 0)

    async def load(self, logs: LogManager) -> None:
        context, config = self._context, self._context.config
        broker_id, metadata = config.int("broker.id"), context.metadata
        try:
            self._tree = TreeHost.open(context.folders.first / COORDINATION_FOLDER, context.runtime.clock)
        except (OSError, CoordinationError) as error:
            raise StartError(f"cannot open the znode tree in the first log dir: {error}") from None
        self.coordination = LocalCoordination(self._tree)
        self.producer_ids = ProducerIds(self.coordination, broker_id)
        self._host = TopicHost(
            broker_id,
            config,
            logs,
            context.partitions,
            metadata,
            on_log_deleted=context.on_log_deleted,
            on_topic_deleted=context.on_topic_deleted,
        )
        self._topics = self.topics = LoneTopics(
            self.coordination,
            self._host,
            live_brokers=lambda: sorted(metadata.nodes),
            defaults=lambda: (config.int("num.partitions"), config.int("default.replication.factor")),
            check_configs=lambda configs: validate_topic(configs, config),
        )
        self._registration = LoneRegistration(config, self.coordination, metadata, context.endpoints)
        await self._registration.register(now_ms=context.runtime.clock.wall_ms())
        self._dynamic_configs = LoneDynamicConfigs(config, self.coordination)
        await self._dynamic_configs.load()
        await context.group_configs.load(self.coordination)
        await context.scram_users.load(self.coordination)
        await context.client_metrics.load(self.coordination)
        adoption = TopicAdoption(
            broker_id, logs, context.partitions, context.runtime.clock, self._topics, self._host, self.producer_ids
        )
        await adoption.load_topics(is_new_tree=self._registration.is_new_tree)

    async def register(self) -> None:
        """There is no other broker. :meth:`load` has written the registration to the tree."""

    async def hand_over(self) -> None:
        """There is no other broker to lead the partitions."""

    async def unregister(self) -> None:
        """The services write to the tree until the end. The registration goes with the session of the tree."""

    async def close(self) -> None:
        if self._tree is not None:
            await self.coordination.close()
            self._tree.close()

    # -- what handlers and services use

    def nodes_seen_by(self, connection: Connection) -> list[Node]:
        config = self._context.config
        advertised = {each.name: each for each in config.listeners.advertised}.get(connection.listener_name)
        # A listener that was closed is missing. Its connections may still ask.
        host, port = self._context.endpoints.get(connection.listener_name) or connection.local_address
        if advertised is not None:
            host, port = advertised.host or host, advertised.port or port
        if host in ("0.0.0.0", "::"):
            # The listener is bound to all addresses: the address that this client used works for this client.
            host = connection.local_address[0]
        return [Node(config.int("broker.id"), host, port, config.optional_str("broker.rack"))]

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """The logs are opened before the tree is read. :meth:`load` corrects their settings."""
        return {} if self._topics is None else self._topics.configs_of(topic)

    def placement(self, internal_topic: str) -> LonePlacement:
        return LonePlacement(internal_topic, self._context.internal_topics)

    def participants(self, service: TransactionService) -> LoneParticipants:
        from headrace.broker.lone.participants import LoneParticipants

        return LoneParticipants(lambda: service.coordinator, service.markers)

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        await self._dynamic_configs.store(name, configs)

    async def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        await self._context.group_configs.store(self.coordination, entity_of(group_id), configs)

    async def set_client_metrics(self, name: str, configs: Mapping[str, str]) -> None:
        await self._context.client_metrics.store(self.coordination, name, configs)

    async def change_user_configs(self, user: str, change: Change) -> None:
        entity = entity_of_user(user)
        self._context.scram_users.put(entity, await change_user(self.coordination, entity, change))

    # -- what the broker reports

    async def refresh_topics(self) -> None:
        assert self._topics is not None
        for topic in list(self._context.metadata):
            await self._host.topic_changed(self._topics.named(topic.name))

    async def addresses_changed(self) -> None:
        await self._registration.update(now_ms=self._context.runtime.clock.wall_ms())

    async def log_dir_failed(self) -> None:
        await self.refresh_topics()

    def metrics(self) -> RoleMetrics:
        from headrace.broker.metrics.role_metrics import LocalMetrics  # imported only if metrics are served

        return LocalMetrics()
