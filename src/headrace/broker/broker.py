"""A broker: its parts, and the order in which they start and stop. Nothing else.

Start: addresses are bound first, so that a taken port is known before anything is touched; then the data folders are
locked and their logs opened or recovered; then the znode tree; then topics; only then are connections accepted. Stop is
the reverse: whoever waits is let go, logs are flushed and closed with the clean-shutdown mark, the tree last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.config import TOPIC_DEFAULT_NAMES, BrokerConfig, describe_topic, topic_log_config, validate_topic
from headrace.broker.connection import Connection
from headrace.broker.dispatch import Dispatcher
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.group_service import GroupService
from headrace.broker.internal_topics import GROUPS, TRANSACTIONS, InternalTopics
from headrace.broker.listener import Connections, Listener
from headrace.broker.maintenance import Maintenance
from headrace.broker.metadata_cache import MetadataCache, Node
from headrace.broker.metrics import Metrics
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.registration import Registration
from headrace.broker.request_queue import RequestQueue
from headrace.broker.topic_host import TopicHost
from headrace.broker.transaction_service import TransactionService
from headrace.controller.topics import Topics
from headrace.coordination.interface import CoordinationError
from headrace.coordination.local import LocalCoordination, TreeHost
from headrace.coordination.paths import encode_uuid, random_uuid
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.log_dir import LogDirError, LogManager
from headrace.log.meta_properties import known_owner
from headrace.protocol.errors import UnknownTopicOrPartition
from headrace.replication.partitions import Partitions
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.loop_timer import LoopTimer
from headrace.runtime.purgatory import Purgatory

if TYPE_CHECKING:
    from headrace.broker.cluster.member import ClusterMember
    from headrace.broker.metrics_exporter import MetricsExporter
    from headrace.log.partition_log import PartitionLog

logger = getLogger(__name__)

T = TypeVar("T")

#: In the first data folder: the znode tree of a broker that runs without a ZooKeeper.
COORDINATION_FOLDER = ".coordination"


class StartError(Exception):
    """The broker cannot start, and this one line says why and what to do."""


class Broker:
    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.config = config
        self._disk = disk or Disk()
        self.clock: Clock = clock or SystemClock()
        self.metrics = Metrics(topic_exists=lambda name: self.metadata.get(name) is not None)
        self.partitions = Partitions()
        self.endpoints: dict[str, tuple[str, int]] = {}
        self.metrics_exporter: MetricsExporter | None = None
        #: Without a ZooKeeper the broker is alone.
        self.cluster: ClusterMember | None = None
        self._directories = [Path(folder).absolute() for folder in config.log_dirs]
        known_broker_id, known_cluster_id = known_owner(self._disk, map(str, self._directories))
        if config.broker_id is None:
            config.settle_broker_id(known_broker_id or 0)
        self.broker_id = config.int("broker.id")
        self._cluster_id = known_cluster_id or encode_uuid(random_uuid())
        self._is_running = False

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
            await self._open_storage()
        except BaseException:
            self._let_go()
            raise
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
        for listener in self._listeners:
            listener.accept_connections()
        if self.metrics_exporter is not None:
            self.metrics_exporter.start()
        self._is_running = True

    def _make_network(self) -> None:
        self._dispatcher = Dispatcher(self, self.loop)
        self.queue = RequestQueue(
            lambda: self.config.int("queued.max.requests"), self._dispatcher.handle, self.loop.call_soon
        )
        self.connections = Connections(self.config, self.timer)
        self._listeners = [
            Listener(
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
        from headrace.broker.metrics_exporter import MetricsExporter  # prometheus_client takes long to import

        host, _, port = wanted.rpartition(":")
        try:
            self.metrics_exporter = MetricsExporter(self, host.strip("[]"), int(port))
        except OSError as error:
            raise StartError(f"cannot serve metrics on {wanted}: {error.strerror}") from None

    async def _open_storage(self) -> None:
        self.logs = LogManager(
            self._directories,
            default_config=topic_log_config({}, self.config),
            config_for=self._log_config_of,
            clock=self.clock,
            broker_id=self.broker_id,
            cluster_id=self._cluster_id,
            disk=self._disk,
            on_offline=self._log_dir_failed,
        )
        try:
            self.logs.load(threads=self.config.int("num.recovery.threads.per.data.dir"))
        except LogDirError as error:
            raise StartError(str(error)) from None
        self.metadata = MetadataCache(self._cluster_id)
        self.internal_topics = InternalTopics(self)
        try:
            self.tree = TreeHost.open(self._directories[0] / COORDINATION_FOLDER, self.clock)
        except (OSError, CoordinationError) as error:
            self.logs.abandon()
            raise StartError(f"cannot open the znode tree in the first log dir: {error}") from None
        self.coordination = LocalCoordination(self.tree)
        self.producer_ids = ProducerIds(self.coordination, self.broker_id)
        host = self._topic_host = TopicHost(
            self.broker_id,
            self.config,
            self.logs,
            self.partitions,
            self.metadata,
            forget_log=self._forget_log,
            forget_topic=lambda name: self.groups.topic_deleted(name),
        )
        self.topics = Topics(
            self.coordination,
            host,
            live_brokers=lambda: sorted(self.metadata.nodes),
            defaults=lambda: (self.config.int("num.partitions"), self.config.int("default.replication.factor")),
            check_configs=lambda configs: validate_topic(configs, self.config),
        )
        registration = Registration(self)
        await registration.register()
        await registration.load_dynamic_configs()
        await registration.load_topics(host)
        self.config.on_any_change(self._defaults_changed)

    def _forget_log(self, log: PartitionLog) -> None:
        self.maintenance.cleaner.forget(log)
        self.metrics.by_topic.forget(log.topic)
        if log.topic == GROUPS:
            self.groups.unload(log.partition)
        elif log.topic == TRANSACTIONS:
            self.transactions.unload(log.partition)
        self.delayed_fetch.check_and_complete((log.topic, log.partition))  # who waits for it learns that it is gone

    def _log_config_of(self, topic: str) -> LogConfig:
        try:
            overrides: Mapping[str, str] = self.topics.named(topic).configs
        except (AttributeError, UnknownTopicOrPartition):
            overrides = {}  # while loading: the topics are not read yet, and set it right then
        return topic_log_config(overrides, self.config)

    def _defaults_changed(self, names: frozenset[str]) -> None:
        if names & {*TOPIC_DEFAULT_NAMES, "producer.id.expiration.ms"}:
            self.maintenance.run_soon(self._refresh_topics())

    def _log_dir_failed(self, _folder: Path, _error: OSError) -> None:
        """On whatever thread it was met."""
        self.loop.call_soon_threadsafe(self._show_failed_logs)

    def _show_failed_logs(self) -> None:
        if self._is_running:  # else its topics are looked at when all dirs are
            self.maintenance.run_soon(self._refresh_topics())

    async def _refresh_topics(self) -> None:
        """A broker setting changed that is the default of topics' settings, or some logs do not work any more."""
        for topic in list(self.metadata):
            await self._topic_host.topic_changed(self.topics.named(topic.name))

    def leadership_changed(self, topic: str, index: int, is_leader: bool) -> None:
        """Of a partition that we have; it has its new role already. Called on the loop."""

    # -- what handlers use ------------------------------------------------------------------------------------------

    async def run_blocking(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs what is slow (fsync, compaction) on a thread."""
        return await self.loop.run_in_executor(self._pool, function, *arguments)

    def nodes_seen_by(self, connection: Connection) -> list[Node]:
        """The brokers, with the addresses that a client of that listener is to use."""
        advertised = {each.name: each for each in self.config.listeners.advertised}.get(connection.listener_name)
        host, port = self.endpoints[connection.listener_name]
        if advertised is not None:
            host, port = advertised.host or host, advertised.port or port
        if host in ("0.0.0.0", "::"):
            host = connection.local_address[0]  # bound to all: what this client used is an address that works for it
        return [Node(self.broker_id, host, port, self.config.optional_str("broker.rack"))]

    def describe_topic_config(self, configs: Mapping[str, str]) -> list[dict[str, object]]:
        return describe_topic(configs, self.config)

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Settings that were checked already, for this broker or (an empty name) for all."""
        await Registration(self).store_dynamic_configs(name, configs)

    # -- stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Controlled shutdown: everything is on disk when it returns."""
        if not self._is_running:
            return
        self._is_running = False
        if self.metrics_exporter is not None:
            self.metrics_exporter.close()
        for listener in self._listeners:
            listener.close()
        self._dispatcher.stop()
        for connection in self.connections:
            connection.close()
        await self.transactions.stop()
        await self.groups.stop()
        await self.maintenance.stop()
        await self.run_blocking(self.logs.close)
        await self.coordination.close()
        self.tree.close()
        self._let_go()

    def _let_go(self) -> None:
        if self.metrics_exporter is not None:
            self.metrics_exporter.close()
        for listener in self._listeners:
            listener.close()
        self._loop_timer.stop()
        self._pool.shutdown(wait=False)
