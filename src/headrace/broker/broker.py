"""A broker: its parts, and the order in which they start and stop. Nothing else.

Start: addresses are bound first, so that a taken port is known before anything is touched; then, in a cluster, it is
settled who we are there; then the data folders are locked and their logs opened or recovered; then the znode tree and
topics; only then are connections accepted, and then the cluster hears of us. Stop is the reverse: leaderships are
handed over, whoever waits is let go, logs are flushed and closed with the clean-shutdown mark, the tree last.

What differs between a broker alone and one in a cluster is behind ``_standing`` (``alone.py``, ``cluster/member.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.group_overrides import GroupConfigs, entity_of
from headrace.broker.configs.registry import TOPIC_DEFAULT_NAMES
from headrace.broker.configs.topic import topic_log_config
from headrace.broker.coordinators.group_service import GroupService
from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS, InternalTopics
from headrace.broker.coordinators.transaction_service import TransactionService
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.maintenance import Maintenance
from headrace.broker.metadata_cache import MetadataCache, Node
from headrace.broker.metrics.counters import Metrics
from headrace.broker.network.connection import Connection
from headrace.broker.network.dispatch import Dispatcher
from headrace.broker.network.handler_binding import served_apis
from headrace.broker.network.listener import Connections, Listener
from headrace.broker.network.request_queue import RequestQueue
from headrace.broker.network.slices import Slices
from headrace.broker.services import Services
from headrace.broker.start_error import StartError
from headrace.coordination.interface import Coordination
from headrace.coordination.znodes import encode_uuid, random_uuid
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.log_manager import LogDirError, LogManager
from headrace.log.meta_properties import known_owner
from headrace.replication.partitions import Partitions
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.loop_timer import LoopTimer
from headrace.runtime.purgatory import Purgatory

if TYPE_CHECKING:
    from headrace.broker.alone import Alone
    from headrace.broker.cluster.member import ClusterMember
    from headrace.broker.cluster.topics import ClusterTopics
    from headrace.broker.coordinators.producer_ids import ProducerIds
    from headrace.broker.metrics.exporter import MetricsExporter
    from headrace.controller.topics import Topics
    from headrace.log.partition_log import PartitionLog

logger = getLogger(__name__)

T = TypeVar("T")

__all__ = ["Broker", "StartError"]


class Broker:
    #: A simulated cluster has its own.
    listener_class: type[Listener] = Listener

    # The standing makes these.
    coordination: Coordination
    producer_ids: ProducerIds
    topics: Topics | ClusterTopics

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self.disk = disk or Disk()
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics(topic_exists=lambda name: self.metadata.get(name) is not None)
        self.partitions = Partitions(lambda topic, index: self.metadata.has_partition(topic, index))
        self.group_configs = GroupConfigs()
        self.endpoints: dict[str, tuple[str, int]] = {}
        self.metrics_exporter: MetricsExporter | None = None
        #: Without a ZooKeeper the broker is alone.
        self.cluster: ClusterMember | None = None
        self.directories = [Path(folder).absolute() for folder in config.log_dirs]
        self.known_broker_id, self.known_cluster_id = known_owner(self.disk, map(str, self.directories))
        self._standing = self._make_standing()
        if config.broker_id is None and self.cluster is None:
            config.settle_broker_id(self.known_broker_id or 0)
        #: In a cluster both may be settled only while starting.
        self.broker_id = config.int("broker.id")
        self.cluster_id = self.known_cluster_id or encode_uuid(random_uuid())
        self._is_running = False

    def _make_standing(self) -> Alone | ClusterMember:
        if not self.config.optional_str("zookeeper.connect"):
            from headrace.broker.alone import Alone

            return Alone(self)
        from headrace.broker.cluster.member import ClusterMember

        self.cluster = ClusterMember(self)
        return self.cluster

    # -- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """
        :raises StartError: if an address is taken, or a data folder is locked, foreign or broken.
        """
        self.loop = asyncio.get_running_loop()
        self._loop_timer = LoopTimer(self.loop, self.clock)
        self.timer = self._loop_timer.timer
        self._pool = ThreadPoolExecutor(self.config.int("num.io.threads"), thread_name_prefix="headrace-io")
        self._make_network()
        try:
            self._bind()
            await self._standing.join()
            self._open_logs()
            await self._standing.open()
            self.config.on_any_change(self._defaults_changed)
            self._start_services()
            await self._standing.enter()
            self.queue.release()
        except BaseException:
            await self._give_up()
            raise
        self._is_running = True

    def _start_services(self) -> None:
        self.delayed_fetch: Purgatory[tuple[str, int]] = Purgatory("Fetch", self.timer)
        self.delayed_produce: Purgatory[tuple[str, int]] = Purgatory("Produce", self.timer)
        self.delayed_delete_records: Purgatory[tuple[str, int]] = Purgatory("DeleteRecords", self.timer)
        self.fetch_sessions = FetchSessions(
            self.clock,
            slots=lambda: self.config.int("max.incremental.fetch.session.cache.slots"),
            eviction_ms=lambda: self.config.int("min.incremental.fetch.session.eviction.ms"),
        )
        self.maintenance = Maintenance(self)
        self.maintenance.start()
        self.groups = GroupService(self)
        self.groups.start()
        self.transactions = TransactionService(self)
        self.transactions.start()
        self.services = self._collect_services()
        self._dispatcher.start(self.services)
        for listener in self._listeners:
            listener.accept_connections()
        if self.metrics_exporter is not None:
            self.metrics_exporter.start()

    def _collect_services(self) -> Services:
        return Services(
            broker=self,
            broker_id=self.broker_id,
            served_apis=served_apis(in_cluster=self.cluster is not None),
            config=self.config,
            config_store=self,
            clock=self.clock,
            metrics=self.metrics,
            metadata=self.metadata,
            nodes_seen_by=self.nodes_seen_by,
            topics=self.topics,
            partitions=self.partitions,
            logs=self.logs,
            relocations=self.maintenance.relocations,
            groups=self.groups,
            group_configs=self.group_configs,
            transactions=self.transactions,
            producer_ids=self.producer_ids,
            fetch_sessions=self.fetch_sessions,
            delayed_fetch=self.delayed_fetch,
            delayed_delete_records=self.delayed_delete_records,
            run_blocking=self.run_blocking,
            cluster=self.cluster,
        )

    def _make_network(self) -> None:
        slices = Slices(self.loop, self.clock)
        self._dispatcher = Dispatcher(self.loop, slices)
        self.queue = RequestQueue(
            lambda: self.config.int("queued.max.requests"), self._dispatcher.handle, self.loop.call_soon
        )
        self.queue.hold()
        self.connections = Connections(self.config, self.timer)
        self._listeners = [
            self.listener_class(
                bound.name,
                bound.host,
                bound.port,
                loop=self.loop,
                config=self.config,
                connections=self.connections,
                queue=self.queue,
                metrics=self.metrics.requests,
                timer=self.timer,
            )
            for bound in self.config.listeners.bound
        ]

    def _bind(self) -> None:
        for listener, wanted in zip(self._listeners, self.config.listeners.bound, strict=True):
            try:
                self.endpoints[listener.name] = listener.bind()
            except OSError as error:
                raise StartError(f"cannot listen on {wanted.host}:{wanted.port}: {error.strerror}") from None
        self._bind_metrics(self.config.str("headrace.metrics.listener"))

    def _bind_metrics(self, wanted: str) -> None:
        if not wanted:
            return
        from headrace.broker.metrics.exporter import MetricsExporter  # prometheus_client takes long to import

        host, _, port = wanted.rpartition(":")
        try:
            self.metrics_exporter = MetricsExporter(self, host.strip("[]"), int(port))
        except OSError as error:
            raise StartError(f"cannot serve metrics on {wanted}: {error.strerror}") from None

    def _open_logs(self) -> None:
        self.metadata = MetadataCache(self.cluster_id)
        self.internal_topics = InternalTopics(self)
        self.logs = LogManager(
            self.directories,
            default_config=topic_log_config({}, self.config),
            config_for=self.log_config_of,
            clock=self.clock,
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            disk=self.disk,
            on_offline=self._log_dir_failed,
        )
        try:
            self.logs.load(threads=self.config.int("num.recovery.threads.per.data.dir"))
        except LogDirError as error:
            raise StartError(str(error)) from None

    def forget_log(self, log: PartitionLog) -> None:
        """It goes for good."""
        self.maintenance.cleaner.forget(log)
        self.metrics.by_topic.forget(log.topic)
        if log.topic == GROUPS:
            self.groups.unload(log.partition)
        elif log.topic == TRANSACTIONS:
            self.transactions.unload(log.partition)
        self.delayed_fetch.check_and_complete((log.topic, log.partition))  # who waits for it learns that it is gone

    def log_config_of(self, topic: str) -> LogConfig:
        # Alone, logs are loaded before topics are read; then those set it right.
        overrides = self.topics.configs_of(topic) if hasattr(self, "topics") else {}
        return topic_log_config(overrides, self.config)

    def _defaults_changed(self, names: frozenset[str]) -> None:
        if names & {*TOPIC_DEFAULT_NAMES, "producer.id.expiration.ms"}:
            self.maintenance.run_soon(self._standing.refresh_topics())

    def _log_dir_failed(self, _folder: Path, _error: OSError) -> None:
        """On whatever thread it was met."""
        self.loop.call_soon_threadsafe(self._show_failed_logs)

    def _show_failed_logs(self) -> None:
        if self._is_running:  # else its topics are looked at when all dirs are
            self.maintenance.run_soon(self._standing.log_dir_failed())

    async def connect_to_tree(self) -> Coordination:
        """A session with the cluster's ZooKeeper.

        :raises CoordinationError: if there is none to be had.
        """
        from headrace.coordination.client.zookeeper_client import ZookeeperCoordination

        session_timeout_ms = self.config.int("zookeeper.session.timeout.ms")
        return await ZookeeperCoordination.connect(
            self.config.str("zookeeper.connect"),
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=self.config.optional_int("zookeeper.connection.timeout.ms") or session_timeout_ms,
        )

    def leadership_changed(self, topic: str, index: int, is_leader: bool) -> None:
        """Of a partition that we have; it has its new role already. Called on the loop."""
        service = self.groups if topic == GROUPS else self.transactions if topic == TRANSACTIONS else None
        if service is not None and is_leader:
            service.became_leader(index)
        elif service is not None:
            service.resigned(index)

    # -- what handlers use ------------------------------------------------------------------------------------------

    async def run_blocking(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs what is slow (fsync, compaction) on a thread."""
        return await self.loop.run_in_executor(self._pool, function, *arguments)

    def nodes_seen_by(self, connection: Connection) -> list[Node]:
        """The brokers, with the addresses that a client of that listener is to use."""
        if self.cluster is not None:
            return list(self.metadata.nodes_of(connection.listener_name).values())
        advertised = {each.name: each for each in self.config.listeners.advertised}.get(connection.listener_name)
        host, port = self.endpoints[connection.listener_name]
        if advertised is not None:
            host, port = advertised.host or host, advertised.port or port
        if host in ("0.0.0.0", "::"):
            host = connection.local_address[0]  # bound to all: what this client used is an address that works for it
        return [Node(self.broker_id, host, port, self.config.optional_str("broker.rack"))]

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Settings that were checked already, for this broker or (an empty name) for all."""
        await self._standing.set_dynamic_configs(name, configs)

    async def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Settings of a group, which were checked already."""
        await self._standing.set_group_configs(entity_of(group_id), configs)

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Controlled shutdown: everything is on disk when it returns."""
        if not self._is_running:
            return
        self._is_running = False
        await self._standing.leave()
        self._stop_serving()
        await self.transactions.stop()
        await self.groups.stop()
        await self._standing.depart()
        await self.maintenance.stop()
        await self.run_blocking(self.logs.close)
        await self._standing.close()
        self._let_go()

    def _stop_serving(self) -> None:
        if self.metrics_exporter is not None:
            self.metrics_exporter.close()
        for listener in self._listeners:
            listener.close()
        self._dispatcher.stop()
        for connection in self.connections:
            connection.close()

    async def _give_up(self) -> None:
        """A start that failed: whatever has begun ends, and the folders are let go as they are."""
        self._stop_serving()
        for service in ("transactions", "groups", "maintenance"):
            if hasattr(self, service):
                await getattr(self, service).stop()
        if hasattr(self, "logs"):
            self.logs.abandon()
        await self._standing.close()
        self._let_go()

    def _let_go(self) -> None:
        self._loop_timer.stop()
        self._pool.shutdown(wait=False)
