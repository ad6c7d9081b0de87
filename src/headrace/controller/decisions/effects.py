"""EffectRunner."""

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from headrace.controller.decisions.broker_requests import Request
from headrace.controller.decisions.leader_elections import Leadership
from headrace.coordination.znodes import TopicAssignment, TopicPartition


class StateWrite(NamedTuple):
    partition: TopicPartition
    #: With the version that the znode must still have.
    leadership: Leadership
    #: The znode must not exist.
    is_new: bool


class WriteStates(NamedTuple):
    writes: tuple[StateWrite, ...]


class ReadStates(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class WriteTopic(NamedTuple):
    topic: str
    assignment: TopicAssignment


class DeleteTopic(NamedTuple):
    topic: str


class ClearReassignments(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class Send(NamedTuple):
    requests: tuple[Request, ...]


Effect: TypeAlias = WriteStates | ReadStates | WriteTopic | DeleteTopic | ClearReassignments | Send
T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, object, T]
