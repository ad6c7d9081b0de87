"""A broker without a ZooKeeper: the znode tree is its own, and it is its own controller.

:class:`Alone` and ``cluster.member.ClusterMember`` are the two ways in which a broker can stand, and ``Broker`` takes
the same steps with either: ``join`` before the logs are opened, ``open`` after, ``enter`` when everything can be
served; ``leave`` while it still is, ``depart`` when it is no longer, and ``close`` when the logs are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.configs.topic import validate_topic
from headrace.broker.coordinators.producer_ids import ProducerIds
from headrace.broker.registration import Registration
from headrace.broker.start_error import StartError
from headrace.broker.topic_host import TopicHost
from headrace.controller.topics import Topics
from headrace.coordination.client.local_client import LocalCoordination
from headrace.coordination.interface import CoordinationError
from headrace.coordination.tree.host import TreeHost

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

#: In the first data folder: the tree.
COORDINATION_FOLDER = ".coordination"


class Alone:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tree: TreeHost | None = None

    async def join(self) -> None:
        """The data folders say who we are, if they are not new."""

    async def open(self) -> None:
        broker, config = self._broker, self._broker.config
        try:
            self._tree = TreeHost.open(broker.directories[0] / COORDINATION_FOLDER, broker.clock)
        except (OSError, CoordinationError) as error:
            raise StartError(f"cannot open the znode tree in the first log dir: {error}") from None
        broker.coordination = LocalCoordination(self._tree)
        broker.producer_ids = ProducerIds(broker.coordination, broker.broker_id)
        self._host = TopicHost(
            broker.broker_id,
            config,
            broker.logs,
            broker.partitions,
            broker.metadata,
            forget_log=broker.forget_log,
            forget_topic=lambda name: broker.groups.topic_deleted(name),
        )
        self._topics = broker.topics = Topics(
            broker.coordination,
            self._host,
            live_brokers=lambda: sorted(broker.metadata.nodes),
            defaults=lambda: (config.int("num.partitions"), config.int("default.replication.factor")),
            check_configs=lambda configs: validate_topic(configs, config),
        )
        self._registration = Registration(broker, self._topics)
        await self._registration.register()
        await self._registration.load_dynamic_configs()
        await broker.group_configs.load(broker.coordination)
        await self._registration.load_topics(self._host)

    async def enter(self) -> None:
        """There is nobody to tell."""

    async def refresh_topics(self) -> None:
        """A broker setting changed that is the default of topics' settings, or some logs do not work any more."""
        for topic in list(self._broker.metadata):
            await self._host.topic_changed(self._topics.named(topic.name))

    async def log_dir_failed(self) -> None:
        await self.refresh_topics()

    async def set_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        await self._registration.store_dynamic_configs(name, configs)

    async def set_group_configs(self, entity: str, configs: Mapping[str, str]) -> None:
        await self._broker.group_configs.store(self._broker.coordination, entity, configs)

    async def leave(self) -> None:
        """There is nobody to tell."""

    async def depart(self) -> None:
        """The tree is still needed for what the services write at the end."""

    async def close(self) -> None:
        if self._tree is not None:
            await self._broker.coordination.close()
            self._tree.close()
