"""Creates, grows and deletes the topics of a single broker, and reads and writes their znodes.

A topic is ``/brokers/topics/T`` (the topic's id and the brokers of each partition), a ``state`` znode below each
partition (leader, epoch, ISR), and ``/config/topics/T``. All znodes of a topic are written in one transaction, so a
crash leaves either the whole topic or nothing. Then the broker is called (:class:`TopicListener`) and creates the
folders. Folders that are missing after a crash are created at the next start.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headrace.broker.topics import Topics
from headrace.controller.placement import PlacementOptions
from headrace.controller.topic_rules import (
    NewTopic,
    Topic,
    first_state,
    metric_name,
    plan_growth,
    plan_topic,
)
from headrace.coordination.interface import Coordination, Create, Delete, NoNodeError, Operation, SetData
from headrace.coordination.paths import (
    TOPICS,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_config_path,
    topic_path,
)
from headrace.coordination.znodes import EntityConfig, PartitionState, TopicAssignment, random_uuid
from headrace.protocol.errors import UnknownTopicOrPartition


class TopicListener(Protocol):
    async def topic_changed(self, topic: Topic) -> None:
        """The topic is new, has more partitions, or has other settings."""

    async def topic_deleted(self, topic: Topic) -> None: ...


class LoneTopics(Topics):
    are_replicated = False
    created_together = 1

    def __init__(
        self,
        coordination: Coordination,
        listener: TopicListener,
        *,
        live_brokers: Callable[[], Sequence[int]],
        defaults: Callable[[], tuple[int, int]],
        check_configs: Callable[[Mapping[str, str]], None],
    ) -> None:
        """``defaults`` are ``num.partitions`` and ``default.replication.factor``."""
        self._coordination = coordination
        self._listener = listener
        self._live_brokers = live_brokers
        self._defaults = defaults
        self._check_configs = check_configs
        self._topics: dict[str, Topic] = {}
        #: Topics by metric name. Two topics must not have the same metric name (``topic_rules.metric_name``).
        self._by_metric_name: dict[str, str] = {}

    async def load(self) -> list[Topic]:
        """Reads all topics from the znode tree."""
        for name in await self._coordination.children(TOPICS):
            self._remember(await self._read(name))
        return list(self._topics.values())

    def named(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        topic = plan_topic(
            new,
            PlacementOptions(self._live_brokers()),
            twin=self._by_metric_name.get(metric_name(new.name)),
            defaults=self._defaults(),
            check_configs=self._check_configs,
        )
        if not validate_only:
            await self.write(topic)
        return topic

    async def create_automatically(self, name: str) -> Topic:
        return await self.create(NewTopic(name))

    async def write(self, topic: Topic) -> None:
        """Creates a topic's znodes, and calls the listener."""
        name = topic.name
        await self._coordination.multi(
            [
                Create(topic_config_path(name), EntityConfig(topic.configs).to_json()),
                Create(topic_path(name), topic.znode.to_json()),
                Create(partitions_path(name)),
                *_partition_znodes(topic, 0),
            ]
        )
        self._remember(topic)
        await self._listener.topic_changed(topic)

    async def add_partitions(
        self, name: str, count: int, given: Sequence[tuple[int, ...]] | None, *, validate_only: bool = False
    ) -> Topic:
        topic = self.named(name)
        grown = plan_growth(topic, count, given, PlacementOptions(self._live_brokers()))
        if not validate_only:
            await self._coordination.multi(
                [SetData(topic_path(name), grown.znode.to_json()), *_partition_znodes(grown, len(topic.assignment))]
            )
            self._remember(grown)
            await self._listener.topic_changed(grown)
        return grown

    def configs_of(self, name: str) -> Mapping[str, str]:
        """The settings of a topic; empty if the topic does not exist."""
        topic = self._topics.get(name)
        return {} if topic is None else topic.configs

    async def stored_configs(self, name: str) -> Mapping[str, str]:
        return self.named(name).configs

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Writes the settings of a topic. The caller has checked them."""
        topic = self.named(name)._replace(configs=dict(configs))
        await self._coordination.set(topic_config_path(name), EntityConfig(configs).to_json())
        self._remember(topic)
        await self._listener.topic_changed(topic)

    async def delete(self, name: str) -> None:
        topic = self.named(name)
        operations: list[Operation] = []
        for index in range(len(topic.assignment)):
            operations += [Delete(partition_state_path(name, index)), Delete(partition_path(name, index))]
        operations += [Delete(partitions_path(name)), Delete(topic_path(name)), Delete(topic_config_path(name))]
        await self._coordination.multi(operations)
        del self._topics[name]
        del self._by_metric_name[metric_name(name)]
        await self._listener.topic_deleted(topic)

    # -- waiting: each change is applied when its method returns

    async def wait_until_applied(
        self,
        made: Mapping[str, int],  # noqa: ARG002  as in Topics
        timeout_ms: int,  # noqa: ARG002  as in Topics
        *,
        gone: Sequence[str] = (),  # noqa: ARG002  as in Topics
    ) -> set[str]:
        return set()

    async def wait_until_propagated(
        self, made: Mapping[str, int], timeout_ms: int, *, gone: Sequence[str] = ()
    ) -> None:
        pass

    async def wait_until_removed(self, names: Sequence[str], timeout_ms: int) -> None:
        pass

    def _remember(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_metric_name[metric_name(topic.name)] = topic.name

    async def _read(self, name: str) -> Topic:
        data, _ = await self._coordination.get(topic_path(name))
        assigned = TopicAssignment.from_json(data)
        assignment = tuple(assigned.partitions[index] for index in range(len(assigned.partitions)))
        states = []
        for index, replicas in enumerate(assignment):
            try:
                data, _ = await self._coordination.get(partition_state_path(name, index))
                states.append(PartitionState.from_json(data))
            except NoNodeError:
                states.append(first_state(replicas))
        try:
            data, _ = await self._coordination.get(topic_config_path(name))
            configs = EntityConfig.from_json(data).config
        except NoNodeError:
            configs = {}
        return Topic(name, assigned.topic_id or random_uuid(), assignment, tuple(states), configs)


def _partition_znodes(topic: Topic, first: int) -> list[Operation]:
    operations: list[Operation] = []
    for index in range(first, len(topic.assignment)):
        operations.append(Create(partition_path(topic.name, index)))
        operations.append(Create(partition_state_path(topic.name, index), topic.states[index].to_json()))
    return operations
