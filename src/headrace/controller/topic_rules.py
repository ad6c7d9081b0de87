"""Checks new topics and plans their partitions: names, numbers of partitions, brokers. Pure functions on values.

``broker/lone/topics.py`` and ``broker/cluster/topics.py`` store topics.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.controller.placement import PlacementOptions, check_assignment, place_replicas, start_for_more
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
#: Per request, as in Kafka. A mistyped number, or an attack, must not keep the broker busy for minutes.
MAX_NEW_PARTITIONS = 10_000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_FIRST_LEADER_EPOCH = 0
_NO_ASSIGNMENT: Mapping[int, tuple[int, ...]] = {}
_NO_CONFIGS: Mapping[str, str] = {}


class NewTopic(NamedTuple):
    """A topic as a client requests it; -1 for numbers that the broker is to choose."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignment: Mapping[int, tuple[int, ...]] = _NO_ASSIGNMENT
    configs: Mapping[str, str] = _NO_CONFIGS


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    #: The brokers of each partition, the preferred leader first.
    assignment: tuple[tuple[int, ...], ...]
    #: For a topic that is not created yet: the states that the controller would choose if all brokers are online.
    states: tuple[PartitionState, ...]
    configs: Mapping[str, str]

    @property
    def znode(self) -> TopicAssignment:
        return TopicAssignment(self.topic_id, dict(enumerate(self.assignment)))


def check_name(name: str) -> None:
    """
    :raises InvalidTopic: if the name is not allowed.
    """
    if not name:
        raise InvalidTopic("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopic(f"a topic name must not be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(f"a topic name may have at most {MAX_NAME_LENGTH} characters; this name has {len(name)}")
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopic(f"a topic name may contain only ASCII letters, digits, '.', '_' and '-': {name!r} does not")


def metric_name(name: str) -> str:
    """The name of a topic in Kafka's metrics, which cannot distinguish "." from "_".

    Two topics must not have the same metric name.
    """
    return name.replace(".", "_")


def plan_topic(
    new: NewTopic,
    placement: PlacementOptions,
    *,
    twin: str | None,
    defaults: tuple[int, int],
    check_configs: Callable[[Mapping[str, str]], None],
) -> Topic:
    """Checks a client's request, and returns the topic to create.

    :param twin: the existing topic with the same metric name, if there is one.
    :param defaults: ``num.partitions`` and ``default.replication.factor``.
    """
    check_name(new.name)
    if new.name == QUORUM_TOPIC:
        raise InvalidRequest(f"{QUORUM_TOPIC} is the metadata log of Apache Kafka and cannot be created as a topic")
    if twin == new.name:
        raise TopicAlreadyExists(f"topic {new.name!r} already exists")
    if twin is not None:
        raise InvalidTopic(
            f"topic {new.name!r} collides with topic {twin!r}, because metrics do not distinguish '.' from '_'"
        )
    if new.assignment:
        assignment = check_assignment(new.assignment, placement.brokers)
    else:
        count = defaults[0] if new.num_partitions == DEFAULT else new.num_partitions
        factor = defaults[1] if new.replication_factor == DEFAULT else new.replication_factor
        if count < 1:
            raise InvalidPartitions(f"a topic needs at least one partition, not {count}")
        _check_new_partitions(count)
        assignment = place_replicas(count, factor, placement)
    check_configs(new.configs)
    return Topic(new.name, random_uuid(), assignment, tuple(map(first_state, assignment)), dict(new.configs))


def plan_growth(
    topic: Topic, count: int, given: Sequence[tuple[int, ...]] | None, placement: PlacementOptions
) -> Topic:
    """Checks a request for more partitions, and returns the topic with them.

    :param count: the total number of partitions.
    :param given: the brokers of each new partition; None to choose them.
    """
    existing = len(topic.assignment)
    if count <= existing:
        reason = "the topic already has that many" if count == existing else "the number cannot be reduced"
        raise InvalidPartitions(f"topic {topic.name!r} has {existing} partitions, {count} were requested: {reason}")
    _check_new_partitions(count - existing)
    factor = len(topic.assignment[0])
    if given is None:
        start = start_for_more(topic.assignment[0][0], placement.brokers)
        options = placement._replace(start_index=start, start_shift=start)
        added = place_replicas(count - existing, factor, options, first_partition=existing)
    elif len(given) != count - existing:
        raise InvalidReplicaAssignment(
            f"{count - existing} partitions are added, but the request assigns brokers to {len(given)}"
        )
    else:
        added = check_assignment(dict(enumerate(given)), placement.brokers, replication_factor=factor)
    return topic._replace(assignment=topic.assignment + added, states=topic.states + tuple(map(first_state, added)))


def first_state(replicas: tuple[int, ...]) -> PartitionState:
    return PartitionState(replicas[0], _FIRST_LEADER_EPOCH, replicas, controller_epoch=1)


def _check_new_partitions(count: int) -> None:
    if count > MAX_NEW_PARTITIONS:
        raise PolicyViolation(
            f"{count} new partitions in one request are too many; at most {MAX_NEW_PARTITIONS} are allowed"
        )
