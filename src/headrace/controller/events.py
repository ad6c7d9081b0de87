"""What the controller hears of, under Kafka's names: one small value an event, with what it carries.

Events are put into ``queue.EventQueue`` and handled one after the other. Those that somebody waits for carry the future
that is answered; if we are not controller, or the queue is cleared before their turn comes, it fails with
:class:`NotController`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, dataclass_transform

from headrace.controller.decisions.broker_requests import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaResponse,
)
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import KafkaError

if TYPE_CHECKING:
    from asyncio import Future

E = TypeVar("E")
T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def _event(kind: type[E]) -> type[E]:
    return dataclass(frozen=True, slots=True, eq=False)(kind)


class Event:
    """What it is called in metrics and logs is the name of its class."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return type(self).__name__


# Who is controller


@_event
class Startup(Event):
    """The broker has started: watch ``/controller``, and stand for election."""


@_event
class ControllerChange(Event):
    """``/controller`` was made or changed."""


@_event
class Reelect(Event):
    """``/controller`` is gone."""


@_event
class Expire(Event):
    """The session with the tree is over: we are not controller."""


@_event
class RegisterBrokerAndReelect(Event):
    """The next session has begun."""


@_event
class ShutdownEventThread(Event):
    """The last one."""


# What the tree says


@_event
class BrokerChange(Event):
    """``/brokers/ids`` has changed."""


@_event
class BrokerModifications(Event):
    """A broker has another address."""

    broker_id: int


@_event
class TopicChange(Event):
    """``/brokers/topics`` has changed."""


@_event
class PartitionModifications(Event):
    """A topic's assignment has changed: it has grown, or moves."""

    topic: str


@_event
class TopicDeletion(Event):
    """``/admin/delete_topics`` has changed."""


@_event
class PartitionReassignment(Event):
    """``/admin/reassign_partitions`` has changed."""


@_event
class PreferredReplicaLeaderElection(Event):
    """``/admin/preferred_replica_election`` was made."""


@_event
class IsrChangeNotification(Event):
    """``/isr_change_notification`` has changed."""


@_event
class LogDirEventNotification(Event):
    """``/log_dir_event_notification`` has changed."""


@_event
class UncleanLeaderElectionEnable(Event):
    """``unclean.leader.election.enable`` may have changed, by default."""


@_event
class TopicUncleanLeaderElectionEnable(Event):
    """The same for a topic."""

    topic: str


# What brokers answer


@_event
class LeaderAndIsrResponseReceived(Event):
    request: LeaderAndIsr
    answer: LeaderAndIsrResponse


@_event
class TopicDeletionStopReplicaResponseReceived(Event):
    request: StopReplica
    answer: StopReplicaResponse


# What time brings


@_event
class AutoPreferredReplicaLeaderElection(Event):
    """``leader.imbalance.check.interval.seconds`` have passed."""


# What is asked


@_event
class RequestEvent(Event, Generic[T]):
    """Somebody waits for the answer."""

    reply: Future[T]

    def answer(self, answer: T) -> None:
        if not self.reply.done():  # else nobody waits any more
            self.reply.set_result(answer)

    def fail(self, error: KafkaError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


@_event
class ControlledShutdown(RequestEvent[list[TopicPartition]]):
    """The answer: which partitions it still leads."""

    broker_id: int
    broker_epoch: int


@_event
class ReplicaLeaderElection(RequestEvent[dict[TopicPartition, KafkaError | None]]):
    """ElectLeaders."""

    #: None: all.
    partitions: Sequence[TopicPartition] | None
    how: ElectionStrategy


@_event
class ApiPartitionReassignment(RequestEvent[dict[TopicPartition, KafkaError | None]]):
    targets: Mapping[TopicPartition, Sequence[int] | None]
    may_change_count: bool


#: What the controller does while it handles an event, by the numbers of Kafka's metric ``ControllerState``. What we do
#: without an event (listing reassignments) is not here.
IDLE = 0
STATE_NUMBERS: Mapping[type[Event], int] = {
    Startup: 1,
    ControllerChange: 1,
    Reelect: 1,
    Expire: 1,
    RegisterBrokerAndReelect: 1,
    BrokerChange: 2,
    BrokerModifications: 2,
    TopicChange: 3,
    PartitionModifications: 3,
    TopicDeletion: 4,
    TopicDeletionStopReplicaResponseReceived: 4,
    PartitionReassignment: 5,
    ApiPartitionReassignment: 5,
    AutoPreferredReplicaLeaderElection: 6,
    PreferredReplicaLeaderElection: 7,
    ReplicaLeaderElection: 7,
    ControlledShutdown: 8,
    IsrChangeNotification: 9,
    LeaderAndIsrResponseReceived: 10,
    LogDirEventNotification: 11,
    ShutdownEventThread: 12,
    UncleanLeaderElectionEnable: 13,
    TopicUncleanLeaderElectionEnable: 14,
}
