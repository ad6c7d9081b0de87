"""Topics: the rules for making, growing and deleting them, and their znodes.

A topic is ``/brokers/topics/T`` (its id and which brokers hold which partition), a ``state`` below each partition
(leader, epoch, ISR), and ``/config/topics/T``. All of a topic's znodes are written in one transaction, so a crash
leaves the whole topic or nothing of it. Then the broker is told (:class:`TopicListener`) and makes the folders;
folders that are missing after a crash are made at the next start.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from headrace.controller.placement import check_assignment, place_replicas
from headrace.coordination.interface import Coordination, Create, Delete, NoNodeError, Operation, SetData
from headrace.coordination.paths import (
    TOPICS,
    EntityConfig,
    PartitionState,
    TopicAssignment,
    partition_path,
    partition_state_path,
    partitions_path,
    random_uuid,
    topic_config_path,
    topic_path,
)
from headrace.log.log_dir import QUORUM_TOPIC
from headrace.protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

MAX_NAME_LENGTH = 249
DEFAULT = -1
#: In one go, as in Kafka: a number that was mistyped, or is an attack, may not keep the broker busy for minutes.
MAX_NEW_PARTITIONS = 10_000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_FIRST_LEADER_EPOCH = 0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What a client asks for; -1 where it leaves a number to the broker."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: UUID
    #: Which brokers hold each partition, the preferred leader first.
    assignment: tuple[tuple[int, ...], ...]
    states: tuple[PartitionState, ...]
    configs: Mapping[str, str]


class TopicListener(Protocol):
    async def topic_changed(self, topic: Topic) -> None:
        """It is new, has grown, or has other settings."""

    async def topic_deleted(self, topic: Topic) -> None: ...


class Topics:
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
        #: Names with "." for "_": Kafka's metrics cannot tell them apart, so two such topics may not coexist.
        self._by_metric_name: dict[str, str] = {}

    async def load(self) -> list[Topic]:
        """All topics of the tree."""
        for name in await self._coordination.children(TOPICS):
            self._remember(await self._read(name))
        return list(self._topics.values())

    def named(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    @staticmethod
    def check_name(name: str) -> None:
        """
        :raises InvalidTopic: if no topic may have that name.
        """
        if not name:
            raise InvalidTopic("a topic's name may not be empty")
        if name in (".", ".."):
            raise InvalidTopic(f"a topic's name may not be {name!r}")
        if len(name) > MAX_NAME_LENGTH:
            raise InvalidTopic(f"a topic's name has at most {MAX_NAME_LENGTH} characters, this one {len(name)}")
        if not _LEGAL_NAME.fullmatch(name):
            raise InvalidTopic(f"a topic's name has only ASCII letters, digits, '.', '_' and '-', not {name!r}")

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        self.check_name(new.name)
        if new.name == QUORUM_TOPIC:
            raise InvalidRequest(f"{QUORUM_TOPIC} is the log of Apache Kafka's quorum and cannot be a topic")
        if new.name in self._topics:
            raise TopicAlreadyExists(f"topic {new.name!r} already exists")
        twin = self._by_metric_name.get(_metric_name(new.name))
        if twin is not None:
            raise InvalidTopic(f"topic {new.name!r} collides with {twin!r}: '.' and '_' count as the same")
        brokers = self._live_brokers()
        if new.assignment:
            assignment = check_assignment(new.assignment, brokers)
        else:
            default_partitions, default_factor = self._defaults()
            count = default_partitions if new.num_partitions == DEFAULT else new.num_partitions
            factor = default_factor if new.replication_factor == DEFAULT else new.replication_factor
            if count < 1:
                raise InvalidPartitions(f"a topic has at least one partition, not {count}")
            _check_new_partitions(count)
            assignment = place_replicas(count, factor, brokers)
        self._check_configs(new.configs)
        states = tuple(_first_state(replicas) for replicas in assignment)
        topic = Topic(new.name, random_uuid(), assignment, states, dict(new.configs))
        if not validate_only:
            await self.write(topic)
        return topic

    async def create_automatically(self, name: str) -> Topic:
        return await self.create(NewTopic(name))

    async def write(self, topic: Topic) -> None:
        """Makes a topic's znodes, and tells."""
        name = topic.name
        await self._coordination.multi(
            [
                Create(topic_config_path(name), EntityConfig(topic.configs).to_json()),
                Create(topic_path(name), _assignment_of(topic).to_json()),
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
        existing = len(topic.assignment)
        if count <= existing:
            wish = "already has that many" if count == existing else "cannot have fewer"
            raise InvalidPartitions(f"topic {name!r} has {existing} partitions and {wish}")
        _check_new_partitions(count - existing)
        factor, brokers = len(topic.assignment[0]), self._live_brokers()
        if given is None:
            added = place_replicas(count - existing, factor, brokers, first_partition=existing)
        elif len(given) != count - existing:
            raise InvalidReplicaAssignment(f"{count - existing} partitions are added, but {len(given)} are assigned")
        else:
            added = check_assignment(dict(enumerate(given)), brokers, replication_factor=factor)
        grown = replace(
            topic,
            assignment=topic.assignment + added,
            states=topic.states + tuple(_first_state(replicas) for replicas in added),
        )
        if not validate_only:
            await self._coordination.multi(
                [SetData(topic_path(name), _assignment_of(grown).to_json()), *_partition_znodes(grown, existing)]
            )
            self._remember(grown)
            await self._listener.topic_changed(grown)
        return grown

    async def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Settings that were checked already."""
        topic = replace(self.named(name), configs=dict(configs))
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
        del self._by_metric_name[_metric_name(name)]
        await self._listener.topic_deleted(topic)

    def _remember(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_metric_name[_metric_name(topic.name)] = topic.name

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
                states.append(_first_state(replicas))
        try:
            data, _ = await self._coordination.get(topic_config_path(name))
            configs = EntityConfig.from_json(data).config
        except NoNodeError:
            configs = {}
        return Topic(name, assigned.topic_id or random_uuid(), assignment, tuple(states), configs)


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


def _assignment_of(topic: Topic) -> TopicAssignment:
    return TopicAssignment(topic.topic_id, dict(enumerate(topic.assignment)))


def _check_new_partitions(count: int) -> None:
    if count > MAX_NEW_PARTITIONS:
        raise PolicyViolation(f"{count} partitions are too many at once; at most {MAX_NEW_PARTITIONS} are made")


def _first_state(replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(replicas[0], _FIRST_LEADER_EPOCH, replicas, controller_epoch=1)


def _partition_znodes(topic: Topic, first: int) -> list[Operation]:
    operations: list[Operation] = []
    for index in range(first, len(topic.assignment)):
        operations.append(Create(partition_path(topic.name, index)))
        operations.append(Create(partition_state_path(topic.name, index), topic.states[index].to_json()))
    return operations
