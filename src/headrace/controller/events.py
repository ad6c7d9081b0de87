"""The controller's events, under Kafka's names. Each event is a small value with the data that it carries.

Events are put into ``event_queue.EventQueue`` and processed one after the other. An event that a caller waits for
carries a future. The future fails with :class:`NotController` if this broker is not the active controller, or if the
queue is cleared before the event is processed.
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
    """An event. Its name in metrics and logs is the name of its class."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return type(self).__name__


# The controller election


@_event
class Startup(Event):
    """The broker has started: watch ``/controller`` and take part in the election."""


@_event
class ControllerChange(Event):
    """``/controller`` was created or changed."""


@_event
class Reelect(Event):
    """``/controller`` was deleted."""


@_event
class Expire(Event):
    """The ZooKeeper session has expired, so this broker is no longer the controller."""


@_event
class RegisterBrokerAndReelect(Event):
    """The next ZooKeeper session has started."""


@_event
class ShutdownEventThread(Event):
    """Stops the consumer of the queue; always the last event."""


# Changes of znodes


@_event
class BrokerChange(Event):
    """``/brokers/ids`` has changed."""


@_event
class BrokerModifications(Event):
    """A broker's registration has changed: the broker has other addresses."""

    broker_id: int


@_event
class TopicChange(Event):
    """``/brokers/topics`` has changed."""


@_event
class PartitionModifications(Event):
    """A topic's assignment has changed: the topic has more partitions, or partitions are being reassigned."""

    topic: str


@_event
class TopicDeletion(Event):
    """``/admin/delete_topics`` has changed."""


@_event
class PartitionReassignment(Event):
    """``/admin/reassign_partitions`` has changed."""


@_event
class PreferredReplicaLeaderElection(Event):
    """``/admin/preferred_replica_election`` was created."""


@_event
class IsrChangeNotification(Event):
    """``/isr_change_notification`` has changed."""


@_event
class LogDirEventNotification(Event):
    """``/log_dir_event_notification`` has changed."""


@_event
class UncleanLeaderElectionEnable(Event):
    """The default of ``unclean.leader.election.enable`` may have changed."""


@_event
class TopicUncleanLeaderElectionEnable(Event):
    """``unclean.leader.election.enable`` of a topic may have changed."""

    topic: str


# Responses of brokers


@_event
class LeaderAndIsrResponseReceived(Event):
    request: LeaderAndIsr
    response: LeaderAndIsrResponse


@_event
class TopicDeletionStopReplicaResponseReceived(Event):
    request: StopReplica
    response: StopReplicaResponse


# Timers


@_event
class AutoPreferredReplicaLeaderElection(Event):
    """``leader.imbalance.check.interval.seconds`` have passed."""


# Requests


@_event
class RequestEvent(Event, Generic[T]):
    """An event that a caller waits for."""

    reply: Future[T]

    def answer(self, result: T) -> None:
        if not self.reply.done():  # otherwise the caller has stopped waiting
            self.reply.set_result(result)

    def fail(self, error: KafkaError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


@_event
class ControlledShutdown(RequestEvent[list[TopicPartition]]):
    """A broker wants to stop. The result: the partitions that the broker still leads."""

    broker_id: int
    broker_epoch: int


@_event
class ReplicaLeaderElection(RequestEvent[dict[TopicPartition, KafkaError | None]]):
    """An ElectLeaders request. The result: the error of each partition, or None."""

    #: None for all partitions.
    partitions: Sequence[TopicPartition] | None
    strategy: ElectionStrategy


@_event
class ApiPartitionReassignment(RequestEvent[dict[TopicPartition, KafkaError | None]]):
    """An AlterPartitionReassignments request. The result: the error of each partition, or None."""

    targets: Mapping[TopicPartition, Sequence[int] | None]
    may_change_count: bool


#: The number of Kafka's metric ``ControllerState`` while the controller processes an event. Kafka's numbers for work
#: that is no event here (listing reassignments) are left out.
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
