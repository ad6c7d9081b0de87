"""What a topic may be: its name, how many partitions, on which brokers. Values in, values out; who stores a topic, and
where, is of no interest here (``topics.py`` alone, ``broker/cluster/topics.py`` in a cluster).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from headrace.controller.placement import check_assignment, place_replicas, start_for_more
from headrace.coordination.znodes import PartitionState, TopicAssignment, random_uuid
from headrace.log.log_manager import QUORUM_TOPIC
from headrace.protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
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
    #: In a cluster it is for the controller to say who leads: for a topic that is about to be made, what would be.
    states: tuple[PartitionState, ...]
    configs: Mapping[str, str]

    @property
    def znode(self) -> TopicAssignment:
        return TopicAssignment(self.topic_id, dict(enumerate(self.assignment)))


class PlacementOptions(NamedTuple):
    """What topics can be placed on, and where to begin (``placement.py``)."""

    brokers: Sequence[int]
    racks: Mapping[int, str | None] = {}
    start_index: int = 0
    start_shift: int = 0


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


def metric_name(name: str) -> str:
    """Kafka's metrics cannot tell "." from "_", so two topics that differ only there may not coexist."""
    return name.replace(".", "_")


def plan_topic(
    new: NewTopic,
    ground: PlacementOptions,
    *,
    twin: str | None,
    defaults: tuple[int, int],
    check_configs: Callable[[Mapping[str, str]], None],
) -> Topic:
    """The topic that a client asks for.

    :param twin: the topic with the same metric name, if there is one.
    :param defaults: ``num.partitions`` and ``default.replication.factor``.
    """
    check_name(new.name)
    if new.name == QUORUM_TOPIC:
        raise InvalidRequest(f"{QUORUM_TOPIC} is the log of Apache Kafka's quorum and cannot be a topic")
    if twin == new.name:
        raise TopicAlreadyExists(f"topic {new.name!r} already exists")
    if twin is not None:
        raise InvalidTopic(f"topic {new.name!r} collides with {twin!r}: '.' and '_' count as the same")
    if new.assignment:
        assignment = check_assignment(new.assignment, ground.brokers)
    else:
        count = defaults[0] if new.num_partitions == DEFAULT else new.num_partitions
        factor = defaults[1] if new.replication_factor == DEFAULT else new.replication_factor
        if count < 1:
            raise InvalidPartitions(f"a topic has at least one partition, not {count}")
        _check_new_partitions(count)
        assignment = place_replicas(
            count,
            factor,
            ground.brokers,
            racks=ground.racks,
            start_index=ground.start_index,
            start_shift=ground.start_shift,
        )
    check_configs(new.configs)
    return Topic(new.name, random_uuid(), assignment, tuple(map(first_state, assignment)), dict(new.configs))


def plan_growth(topic: Topic, count: int, given: Sequence[tuple[int, ...]] | None, ground: PlacementOptions) -> Topic:
    """The topic with more partitions."""
    existing = len(topic.assignment)
    if count <= existing:
        wish = "already has that many" if count == existing else "cannot have fewer"
        raise InvalidPartitions(f"topic {topic.name!r} has {existing} partitions and {wish}")
    _check_new_partitions(count - existing)
    factor = len(topic.assignment[0])
    if given is None:
        start = start_for_more(topic.assignment[0][0], ground.brokers)
        added = place_replicas(
            count - existing,
            factor,
            ground.brokers,
            racks=ground.racks,
            first_partition=existing,
            start_index=start,
            start_shift=start,
        )
    elif len(given) != count - existing:
        raise InvalidReplicaAssignment(f"{count - existing} partitions are added, but {len(given)} are assigned")
    else:
        added = check_assignment(dict(enumerate(given)), ground.brokers, replication_factor=factor)
    return replace(topic, assignment=topic.assignment + added, states=topic.states + tuple(map(first_state, added)))


def first_state(replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(replicas[0], _FIRST_LEADER_EPOCH, replicas, controller_epoch=1)


def _check_new_partitions(count: int) -> None:
    if count > MAX_NEW_PARTITIONS:
        raise PolicyViolation(f"{count} partitions are too many at once; at most {MAX_NEW_PARTITIONS} are made")
