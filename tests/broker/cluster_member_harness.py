"""The parts of ``broker/cluster`` without a broker, on a tree in this process that several harnesses may share."""

import asyncio

from headrace.broker.authentication.scram_users import ScramUsers
from headrace.broker.cluster.config_changes import ConfigChanges
from headrace.broker.cluster.controller_fence import ControllerFence
from headrace.broker.cluster.metadata_updates import MetadataUpdates
from headrace.broker.cluster.registration import ClusterRegistration
from headrace.broker.cluster.topics import ClusterTopics
from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.group_overrides import GroupConfigs
from headrace.broker.data_folders import DataFolders
from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.telemetry.subscriptions import Subscriptions
from headrace.controller.decisions.broker_requests import MetadataPartition, UpdateMetadata
from headrace.controller.decisions.context import LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.interface import ConnectionLostError
from headrace.coordination.znodes import BrokerRegistration, Endpoint
from headrace.log.disk import Disk
from headrace.runtime.timer import Timer
from headrace.testing.expiring_coordination import ExpiringCoordination


class Recorder:
    """Remembers which of its methods were called, with what."""

    def __init__(self, **attributes):
        self.calls = []
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


class ClusterMemberHarness:
    def __init__(self, tree, clock, folder, **settings):
        properties = {name.replace("_", "."): str(value) for name, value in settings.items()}
        folder.mkdir(exist_ok=True)
        self.config = BrokerConfig.load(
            {"log.dirs": str(folder), "zookeeper.connect": "z:1", "listeners": "PLAINTEXT://h:1", **properties}
        )
        self.clock = clock
        self.timer = Timer(clock)
        self.loop = asyncio.get_running_loop()
        self.coordination = ExpiringCoordination(tree, call_soon=self.loop.call_soon)
        self.endpoints = {listener.name: (listener.host, listener.port) for listener in self.config.listeners.bound}
        self.metadata = MetadataCache("c")
        self.group_configs = GroupConfigs()
        self.scram_users = ScramUsers()
        self.client_metrics = Subscriptions()
        #: The parts that are not tested here.
        self.parts = Recorder()
        self.registration = ClusterRegistration(
            self.config, DataFolders([str(folder)], Disk()), self.endpoints, self.coordination, clock
        )
        self.configs = ConfigChanges(
            self.config,
            self.group_configs,
            self.scram_users,
            self.client_metrics,
            self.coordination,
            clock,
            on_topic_changed=self.parts.topic_configured,
            on_unclean_election_changed=self.parts.unclean_election_changed,
        )
        self.updates = MetadataUpdates(
            self.metadata,
            ControllerFence(lambda: self.registration.broker_epoch),
            self.config.listeners.inter_broker,
            on_brokers_changed=self.parts.brokers_changed,
            on_topic_deleted=self.parts.topic_deleted,
            on_updated=self._metadata_updated,
        )
        self.topics = None

    @property
    def broker_id(self):
        return self.config.int("broker.id")

    def make_topics(self, random):
        self.topics = ClusterTopics(
            self.broker_id, self.config, self.coordination, self.metadata, self.configs, None, self.timer, random
        )
        return self.topics

    def _metadata_updated(self, topics):
        self.parts.metadata_updated(sorted(topics))
        if self.topics is not None:
            self.topics.metadata_changed(topics)


def live(broker_id, *, rack=None, listeners=("PLAINTEXT",), epoch=1):
    endpoints = tuple(Endpoint(name, "PLAINTEXT", f"h{broker_id}", 9000 + n) for n, name in enumerate(listeners))
    return LiveBroker(broker_id, epoch, BrokerRegistration(endpoints, 0, rack))


def led(topic, index, leader, *, epoch=0, replicas=(1, 2, 3), offline=()):
    return MetadataPartition(topic, index, leader, Leadership(leader, epoch, replicas, 1), replicas, offline)


def update(*partitions, brokers=(1, 2, 3), topic_ids=None, controller_id=1, controller_epoch=1):
    lives = tuple(broker if isinstance(broker, LiveBroker) else live(broker) for broker in brokers)
    return UpdateMetadata(1, -1, controller_id, controller_epoch, partitions, topic_ids or {}, lives)


async def until(condition, timeout_s=5.0):
    """Lets the loop run until something is so."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  what it waits for is not ours to set
            await asyncio.sleep(0)


def fail_first_read(monkeypatch, coordination):
    """Lets the next read of a znode fail, as if the connection was lost."""
    get, failed = coordination.get, []

    async def fail_once(path, **options):
        if not failed:
            failed.append(path)
            raise ConnectionLostError
        return await get(path, **options)

    monkeypatch.setattr(coordination, "get", fail_once)
