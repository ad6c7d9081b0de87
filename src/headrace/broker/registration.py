"""A broker's place in the znode tree: the cluster's id, its own registration, the controller, and what is stored there.

Without a ZooKeeper the tree is the broker's own, and the broker is its own controller.

Data folders that come without a tree (an Apache Kafka's, or ours with the tree lost) are adopted: each partition's
folder says which topic it is of, and which id that topic has. In a tree that is not new, a folder whose topic is not
there is what a crash left of a deletion, and is put aside as ``-stray``, as Kafka does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.configs.listeners import SecurityProtocol
from headrace.broker.metadata_cache import Node
from headrace.broker.topic_host import TopicHost
from headrace.controller.topics import Topic, Topics
from headrace.coordination.interface import NodeExistsError, NoNodeError
from headrace.coordination.paths import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PERSISTENT_PATHS,
    broker_config_path,
    broker_path,
)
from headrace.coordination.znodes import (
    BrokerRegistration,
    ClusterId,
    ControllerRegistration,
    Endpoint,
    EntityConfig,
    PartitionState,
    encode_controller_epoch,
    random_uuid,
)
from headrace.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

logger = getLogger(__name__)

_FIRST_CONTROLLER_EPOCH = 1


class Registration:
    def __init__(self, broker: Broker, topics: Topics) -> None:
        self._broker = broker
        self._topics = topics
        self._coordination = broker.coordination
        self._is_new_tree = False

    async def register(self) -> None:
        broker, coordination = self._broker, self._coordination
        await self._settle_cluster_id()
        for path in PERSISTENT_PATHS:
            if await coordination.exists(path) is None:
                await coordination.create(path)
        now_ms = broker.clock.wall_ms()
        endpoints = tuple(
            Endpoint(name, SecurityProtocol.PLAINTEXT, host, port) for name, (host, port) in broker.endpoints.items()
        )
        rack = broker.config.optional_str("broker.rack")
        registration = BrokerRegistration(endpoints, now_ms, rack)
        await coordination.create(broker_path(broker.broker_id), registration.to_json(), ephemeral=True)
        controller = ControllerRegistration(broker.broker_id, now_ms)
        await coordination.create(CONTROLLER, controller.to_json(), ephemeral=True)
        if await coordination.exists(CONTROLLER_EPOCH) is None:
            await coordination.create(CONTROLLER_EPOCH, encode_controller_epoch(_FIRST_CONTROLLER_EPOCH))
        host, port = next(iter(broker.endpoints.values()))
        broker.metadata.nodes[broker.broker_id] = Node(broker.broker_id, host, port, rack)
        broker.metadata.controller_id = broker.broker_id

    async def _settle_cluster_id(self) -> None:
        """The data folders' id holds: they were locked and checked against each other already."""
        coordination = self._coordination
        content = ClusterId(self._broker.metadata.cluster_id).to_json()
        try:
            await coordination.create(CLUSTER_ID, content, make_parents=True)
            self._is_new_tree = True
        except NodeExistsError:
            await coordination.set(CLUSTER_ID, content)

    # -- dynamic configs

    async def load_dynamic_configs(self) -> None:
        broker = self._broker
        own = await self._stored_configs(broker.broker_id)
        default = await self._stored_configs(None)
        if own or default:
            broker.config.apply_dynamic(own, default)

    async def _stored_configs(self, broker_id: int | None) -> Mapping[str, str]:
        try:
            data, _ = await self._coordination.get(broker_config_path(broker_id))
        except NoNodeError:
            return {}
        return EntityConfig.from_json(data).config

    async def store_dynamic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        config = self._broker.config
        path = broker_config_path(int(name) if name else None)
        if name:
            config.apply_dynamic(configs, config.dynamic_default)
        else:
            config.apply_dynamic(config.dynamic_broker, configs)
        content = EntityConfig(configs).to_json()
        if await self._coordination.exists(path) is None:
            await self._coordination.create(path, content)
        else:
            await self._coordination.set(path, content)

    # -- topics

    async def load_topics(self, host: TopicHost) -> None:
        broker = self._broker
        for topic in await self._topics.load():
            if broker.logs.offline:
                host.lose_missing_logs(topic)
            await host.topic_changed(topic)
        strangers: dict[str, dict[int, PartitionLog]] = defaultdict(dict)
        for log in list(broker.logs.all()):
            if broker.partitions.get(log.topic, log.partition) is None:
                strangers[log.topic][log.partition] = log
        adopted: list[PartitionLog] = []
        for name, logs in strangers.items():
            if self._is_new_tree and sorted(logs) == list(range(len(logs))):
                await self._adopt(name, logs)
                adopted += logs.values()
            else:
                for index in logs:
                    logger.warning("%s-%d belongs to no topic; its folder is put aside as -stray", name, index)
                    broker.logs.set_aside(name, index)
        if adopted:
            from headrace.broker.coordinators.adopted_producers import largest_producer_id

            await broker.producer_ids.begin_above(largest_producer_id(broker, adopted))

    async def _adopt(self, name: str, logs: Mapping[int, PartitionLog]) -> None:
        logger.info("adopting topic %s with %d partitions from its folders", name, len(logs))
        replicas = (self._broker.broker_id,)
        topic = Topic(
            name,
            logs[0].topic_id or random_uuid(),
            tuple(replicas for _ in logs),
            tuple(
                PartitionState(replicas[0], max(0, logs[index].latest_epoch), replicas, _FIRST_CONTROLLER_EPOCH)
                for index in range(len(logs))
            ),
            {},
        )
        await self._topics.write(topic)
