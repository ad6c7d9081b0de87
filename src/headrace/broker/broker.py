"""Builds the parts of a broker, and starts and stops them in order. Nothing else.

Start: the addresses are bound first, so that a taken port is known before anything is changed. Then the role settles
the broker's ids. Then the data folders are locked, and their logs are opened or recovered. Then the role reads topics
and settings from the znode tree. Then the broker accepts connections. The broker registers in its cluster last.

Stop is the reverse: leaderships are handed over, waiting requests end, the logs are flushed and closed with the
clean-shutdown mark, and the znode tree is closed last.

``cluster_role.py`` hides what differs between a lone broker and a member of a cluster.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.broker.authentication.choice import Logins
from headrace.broker.authentication.scram_users import ScramUsers
from headrace.broker.authentication.token_service import TokenService, start_tokens
from headrace.broker.authorization.choice import RunningAuthorizer, start_authorizer
from headrace.broker.cluster_role import ClusterRole, RoleContext, choose_role, connect_to_tree
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.group_overrides import GroupConfigs
from headrace.broker.configs.registry import TOPIC_DEFAULT_NAMES
from headrace.broker.configs.topic import topic_log_config
from headrace.broker.coordinators.committed import CommitWaits
from headrace.broker.coordinators.coordinator_service import CoordinatorContext
from headrace.broker.coordinators.coordinators import Coordinators
from headrace.broker.coordinators.group_service import GroupService
from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS, InternalTopics
from headrace.broker.coordinators.transaction_service import TransactionService
from headrace.broker.current_leaders import CurrentLeaders
from headrace.broker.data_folders import DataFolders
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.maintenance.maintenance import Maintenance
from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.metrics.counters import Metrics
from headrace.broker.network.connections import Connections
from headrace.broker.network.dispatch import Dispatcher
from headrace.broker.network.handler_binding import served_apis
from headrace.broker.network.listener import Listener, ListenerContext
from headrace.broker.network.open_listeners import OpenListeners
from headrace.broker.network.request_queue import RequestQueue
from headrace.broker.network.slices import Slices
from headrace.broker.purgatories import Purgatories
from headrace.broker.quotas.client_quotas import ClientQuotas
from headrace.broker.quotas.enforcement import make_enforcement
from headrace.broker.quotas.stored_quotas import StoredQuotas, start_quotas
from headrace.broker.runtime import BrokerRuntime
from headrace.broker.services import Services
from headrace.broker.start_error import StartError
from headrace.broker.telemetry.subscriptions import Subscriptions
from headrace.broker.telemetry.telemetry import Telemetry
from headrace.coordination.interface import Coordination
from headrace.coordination.znodes import encode_uuid, random_uuid
from headrace.log.disk import Disk
from headrace.log.log_manager import LogDirError, LogManager
from headrace.replication.partitions import Partitions
from headrace.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from headrace.broker.metrics.exporter import MetricsExporter
    from headrace.broker.metrics.values import MetricSources
    from headrace.log.config import LogConfig
    from headrace.log.partition_log import PartitionLog
    from headrace.transactions.markers import Marker

__all__ = ["Broker", "StartError"]


class Broker:
    #: The simulated cluster replaces it.
    listener_class: type[Listener] = Listener

    # ``start`` sets these, in this order.
    runtime: BrokerRuntime
    role: ClusterRole
    logs: LogManager
    stored_quotas: StoredQuotas
    authorizer: RunningAuthorizer
    delegation_tokens: TokenService
    coordinators: Coordinators
    maintenance: Maintenance
    services: Services

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.folders = DataFolders(config.log_dirs, disk or Disk())
        self.endpoints: dict[str, tuple[str, int]] = {}
        self.metadata = MetadataCache(self.folders.stored_cluster_id or encode_uuid(random_uuid()))
        self.metrics = Metrics(topic_exists=lambda name: self.metadata.get(name) is not None)
        self.partitions = Partitions(self.metadata.has_partition)
        self.group_configs = GroupConfigs()
        self.scram_users = ScramUsers()
        self.client_quotas = ClientQuotas()
        self.client_metrics = Subscriptions()
        self.fetch_sessions = FetchSessions(
            self.clock,
            slots=lambda: config.int("max.incremental.fetch.session.cache.slots"),
            eviction_ms=lambda: config.int("min.incremental.fetch.session.eviction.ms"),
        )
        self.metrics_exporter: MetricsExporter | None = None
        self._is_running = False

    @property
    def broker_id(self) -> int:
        """In a cluster it may be settled only while starting."""
        return self.config.int("broker.id")

    # -- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """
        :raises StartError: if an address is taken, or a data folder is locked, broken or another broker's.
        """
        loop = asyncio.get_running_loop()
        self.runtime = BrokerRuntime.of_config(loop, self.clock, self.config)
        self.purgatories = Purgatories(self.runtime.timer)
        self.telemetry = Telemetry(self.config, self.clock, self.runtime.timer, self.client_metrics)
        self.commit_waits = CommitWaits(loop, self.purgatories.produce)
        self.internal_topics = InternalTopics(
            self.config, self.clock, self.metadata, lambda: self.role.topics, self.purgatories.fetch
        )
        self._make_network()
        self.role = choose_role(self._role_context())
        undo = AsyncExitStack()
        undo.callback(self.runtime.stop)
        undo.push_async_callback(self.role.close)
        try:
            self.listeners.bind()
            self._bind_metrics()
            await self.role.identify()
            self._open_logs(undo)
            await self.role.load(self.logs)
            if self.listeners.use_stored_settings():
                await self.role.addresses_changed()
            self.stored_quotas = await start_quotas(self.role.coordination, self.clock, self.client_quotas)
            undo.push_async_callback(self.stored_quotas.stop)
            self.authorizer = await start_authorizer(self.config, self.role.coordination, self.clock)
            undo.push_async_callback(self.authorizer.stop)
            self.delegation_tokens = await start_tokens(self.config, self.role.coordination, self.runtime)
            undo.push_async_callback(self.delegation_tokens.stop)
            await self._load_logins()
            self.config.on_any_change(self._defaults_changed)
            self._make_services()
            self._start_services(undo)
            await self.role.register()
            self.queue.release()
        except BaseException:
            self._stop_serving()
            await undo.aclose()
            raise
        self._is_running = True

    def _role_context(self) -> RoleContext:
        return RoleContext(
            config=self.config,
            runtime=self.runtime,
            folders=self.folders,
            endpoints=self.endpoints,
            metadata=self.metadata,
            partitions=self.partitions,
            purgatories=self.purgatories,
            group_configs=self.group_configs,
            scram_users=self.scram_users,
            client_metrics=self.client_metrics,
            internal_topics=self.internal_topics,
            commit_waits=self.commit_waits,
            connect_to_tree=self.connect_to_tree,
            on_leadership_changed=lambda *change: self.coordinators.leadership_changed(*change),
            on_log_deleted=self._log_deleted,
            on_topic_deleted=lambda name: self.coordinators.topic_deleted(name),
        )

    async def connect_to_tree(self) -> Coordination:
        """Opens a session with the cluster's ZooKeeper. The simulated cluster replaces this method.

        :raises CoordinationError: if ZooKeeper does not answer.
        :raises StartError: if the settings of the connection cannot be used.
        """
        return await connect_to_tree(self.config)

    # -- network

    def _make_network(self) -> None:
        runtime = self.runtime
        self._dispatcher = Dispatcher(runtime.loop, Slices(runtime.loop, self.clock))
        self.queue = RequestQueue(
            lambda: self.config.int("queued.max.requests"), self._dispatcher.handle, runtime.loop.call_soon
        )
        self.queue.hold()
        self.enforcement = make_enforcement(self.client_quotas, self.config, runtime)
        self.connections = Connections(
            self.config, runtime.timer, self.clock, self.enforcement.connections, runtime.run_blocking
        )
        self.logins = Logins(self.config, runtime, self.scram_users, self.metrics.logins)
        context = ListenerContext(
            loop=runtime.loop,
            config=self.config,
            connections=self.connections,
            queue=self.queue,
            metrics=self.metrics.requests,
            throttling=self.enforcement.throttling,
            timer=runtime.timer,
            run_blocking=runtime.run_blocking,
            new_login=self.logins.login_on,
        )
        self.listeners = OpenListeners(
            context,
            self.listener_class,
            self.endpoints,
            load_logins=self._load_logins,
            on_addresses_changed=lambda: self.role.addresses_changed(),
            run_soon=lambda job: self.maintenance.run_soon(job),
        )

    async def _load_logins(self) -> None:
        await self.logins.load(self.role.coordination, self.delegation_tokens.account_of)

    def _bind_metrics(self) -> None:
        if self.config.str("headrace.metrics.listener"):
            from headrace.broker.metrics.exporter import bind_exporter  # prometheus_client takes long to import

            self.metrics_exporter = bind_exporter(self.config)

    # -- logs

    def _open_logs(self, undo: AsyncExitStack) -> None:
        self.logs = LogManager(
            self.folders.paths,
            default_config=topic_log_config({}, self.config),
            config_for=self._log_config_of,
            clock=self.clock,
            broker_id=self.broker_id,
            cluster_id=self.metadata.cluster_id,
            disk=self.folders.disk,
            on_offline=self._log_dir_failed,
        )
        undo.callback(self.logs.abandon)
        try:
            self.logs.load(threads=self.config.int("num.recovery.threads.per.data.dir"))
        except LogDirError as error:
            raise StartError(str(error)) from None

    def _log_config_of(self, topic: str) -> LogConfig:
        return topic_log_config(self.role.topic_configs(topic), self.config)

    def _log_deleted(self, log: PartitionLog) -> None:
        self.maintenance.log_deleted(log)
        self.metrics.by_topic.forget(log.topic)
        self.coordinators.log_deleted(log.topic, log.partition)
        self.purgatories.fetch.check_and_complete((log.topic, log.partition))  # waiting consumers get an error

    def _defaults_changed(self, names: frozenset[str]) -> None:
        if names & {*TOPIC_DEFAULT_NAMES, "producer.id.expiration.ms"}:
            self.maintenance.run_soon(self.role.refresh_topics())

    def _log_dir_failed(self, _folder: Path, _error: OSError) -> None:
        """Called on the thread that met the error."""
        self.runtime.loop.call_soon_threadsafe(self._stop_failed_partitions)

    def _stop_failed_partitions(self) -> None:
        if self._is_running:  # otherwise the start handles the failed log dirs when it has opened all of them
            self.maintenance.run_soon(self.role.log_dir_failed())

    # -- services

    def _make_services(self) -> None:
        context = CoordinatorContext(
            self.runtime, self.config, self.partitions, self.internal_topics, self.commit_waits, self.metadata
        )
        groups = GroupService(context, self.role.placement(GROUPS), self.group_configs)
        transactions = TransactionService(
            context,
            self.role.placement(TRANSACTIONS),
            producer_ids=self.role.producer_ids,
            make_participants=self.role.participants,
            on_marker=self._marker_written,
        )
        self.coordinators = Coordinators(groups, transactions)
        self.maintenance = Maintenance(
            self.config, self.runtime, self.logs, self.partitions, expire_offsets=groups.expire_offsets
        )
        self.services = self._collect_services()

    def _collect_services(self) -> Services:
        return Services(
            broker_id=self.broker_id,
            served_apis=served_apis(in_cluster=self.role.serves_control_apis),
            config=self.config,
            config_store=self.role,
            loggers=self.runtime.loggers,
            scram_users=self.scram_users,
            client_quotas=self.client_quotas,
            stored_quotas=self.stored_quotas,
            clock=self.clock,
            metrics=self.metrics,
            throttling=self.enforcement.throttling,
            controller_mutations=self.enforcement.mutations,
            authorizer=self.authorizer.authorizer,
            delegation_tokens=self.delegation_tokens,
            metadata=self.metadata,
            nodes_seen_by=self.role.nodes_seen_by,
            current_leaders=CurrentLeaders(self.broker_id, self.metadata, self.role.nodes_seen_by),
            topics=self.role.topics,
            controller=self.role.controller,
            control_requests=self.role.control_requests,
            partitions=self.partitions,
            followers=self.role.followers,
            commit_waits=self.commit_waits,
            logs=self.logs,
            relocations=self.maintenance.relocations,
            groups=self.coordinators.groups,
            group_configs=self.group_configs,
            client_metrics=self.client_metrics,
            telemetry=self.telemetry,
            transactions=self.coordinators.transactions,
            producer_ids=self.role.producer_ids,
            fetch_sessions=self.fetch_sessions,
            delayed_fetch=self.purgatories.fetch,
            delayed_delete_records=self.purgatories.delete_records,
            run_blocking=self.runtime.run_blocking,
            read_records=self.runtime.read_records,
        )

    def _metric_sources(self) -> MetricSources:
        from headrace.broker.metrics.values import MetricSources  # imported only if metrics are served

        return MetricSources(
            broker_id=self.broker_id,
            clock=self.clock,
            metrics=self.metrics,
            metadata=self.metadata,
            partitions=self.partitions,
            logs=self.logs,
            maintenance=self.maintenance,
            purgatories=self.purgatories,
            fetch_sessions=self.fetch_sessions,
            queue=self.queue,
            connections=self.connections,
            enforcement=self.enforcement,
            endpoints=self.endpoints,
            telemetry=self.telemetry,
            role=self.role,
        )

    def _marker_written(self, topic: str, index: int, marker: Marker) -> None:
        if topic == GROUPS:
            self.coordinators.groups.coordinator.transaction_ended(index, marker.producer_id, marker.is_commit)
        self.purgatories.fetch.check_and_complete((topic, index))  # consumers with read_committed may wait for it

    def _start_services(self, undo: AsyncExitStack) -> None:
        self.maintenance.start()
        undo.push_async_callback(self.maintenance.stop)
        undo.push_async_callback(self.coordinators.stop)
        self.coordinators.start()
        self._dispatcher.start(self.services)
        self.listeners.accept_connections()
        if self.metrics_exporter is not None:
            self.metrics_exporter.start(self._metric_sources())

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Controlled shutdown: everything is on disk when the method returns."""
        if not self._is_running:
            return
        self._is_running = False
        await self.role.hand_over()
        self._stop_serving()
        await self.coordinators.stop()
        await self.stored_quotas.stop()
        await self.authorizer.stop()
        await self.delegation_tokens.stop()
        await self.role.unregister()
        await self.maintenance.stop()
        await self.runtime.run_blocking(self.logs.close, self.config.int("num.recovery.threads.per.data.dir"))
        await self.role.close()
        self.runtime.stop()

    def _stop_serving(self) -> None:
        if self.metrics_exporter is not None:
            self.metrics_exporter.stop()
        self.listeners.close()
        self._dispatcher.stop()
        for connection in self.connections:
            connection.close()
        self.listeners.stop_threads()
