"""A broker's standing in a cluster without a broker: what the parts of ``broker/cluster`` see of one, on a tree in this
process that several of them share."""

import asyncio

from headrace.broker.configs.broker_config import BrokerConfig
from headrace.broker.configs.group_overrides import GroupConfigs
from headrace.broker.metadata_cache import MetadataCache
from headrace.controller.decisions.broker_requests import MetadataPartition, UpdateMetadata
from headrace.controller.decisions.context import LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.znodes import BrokerRegistration, Endpoint
from headrace.log.disk import Disk
from headrace.log.meta_properties import known_owner
from headrace.runtime.timer import Timer


class Recorder:
    """Remembers which of its methods were called, with what."""

    def __init__(self, **attributes):
        self.calls = []
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


class Member(Recorder):
    """The parts beside the one that is tested."""

    def __init__(self):
        super().__init__(
            is_open=True,
            replicas=Recorder(logs=Recorder()),
            controller=Recorder(is_active=True),
            topics=None,
            configs=Recorder(),
        )

    def metadata_updated(self, topics):
        self.calls.append(("metadata_updated", sorted(topics)))
        if self.topics is not None:
            self.topics.changed(topics)


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
        self.coordination = LocalCoordination(tree, call_soon=self.loop.call_soon)
        self.disk = Disk()
        self.directories = [folder]
        self.known_broker_id, self.known_cluster_id = known_owner(self.disk, [str(folder)])
        self.broker_id = self.config.int("broker.id")
        self.cluster_id = ""
        self.endpoints = {listener.name: (listener.host, listener.port) for listener in self.config.listeners.bound}
        self.metadata = MetadataCache("c")
        self.groups = Recorder()
        self.group_configs = GroupConfigs()
        self.cluster = Member()


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
