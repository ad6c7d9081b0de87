"""What the controller tells the brokers: LeaderAndIsr, StopReplica and UpdateMetadata as plain values, one of each a
broker, whatever the number of partitions.

A :class:`RequestBatch` collects what a change means for the brokers, and then makes the requests: first LeaderAndIsr,
then UpdateMetadata, then StopReplica, in which order a broker gets them. It looks at the context only when it makes
them, so a partition that changed twice in between is told once, as it is. Of a partition in a LeaderAndIsr every live
broker gets the metadata. Brokers that are dead are left out: they learn all when they come back.

All brokers' UpdateMetadata share one tuple of partitions, so that whoever encodes them does that once.

:class:`Channel` is what takes the requests to the brokers; what comes back are the answers defined here.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from headrace.controller.decisions.context import ControllerContext, LiveBroker
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import ErrorCode

#: As a leader in UpdateMetadata: the partition is being deleted, forget it.
LEADER_DURING_DELETE = -2
#: As a leader epoch in StopReplica: whatever the replica knows, the topic is being deleted (KIP-570).
EPOCH_DURING_DELETE = -2
#: As a leader epoch in StopReplica: the partition never had a leader.
NO_EPOCH = -1


class LeaderAndIsrPartition(NamedTuple):
    topic: str
    partition: int
    leadership: Leadership
    assignment: Assignment
    #: The replica may not exist yet, and may be made on any disk that works.
    is_new: bool


class LeaderAndIsr(NamedTuple):
    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    topic_ids: dict[str, UUID | None]
    #: Where the leaders named here can be reached.
    live_leaders: tuple[LiveBroker, ...]


class MetadataPartition(NamedTuple):
    topic: str
    partition: int
    leader: int
    leadership: Leadership
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class UpdateMetadata(NamedTuple):
    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[MetadataPartition, ...]
    topic_ids: dict[str, UUID | None]
    live_brokers: tuple[LiveBroker, ...]


class StoppedPartition(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    #: Its log goes, too.
    is_deleted: bool


class StopReplica(NamedTuple):
    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[StoppedPartition, ...]


Request: TypeAlias = LeaderAndIsr | UpdateMetadata | StopReplica


class LeaderAndIsrResponse(NamedTuple):
    """To a LeaderAndIsr. ``error`` is of the request as a whole; then there are no partitions."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


class StopReplicaResponse(NamedTuple):
    """To a StopReplica, likewise."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


class Channel(Protocol):
    """How requests get to the brokers, in order for each of them, and tried again until they are answered or the broker
    is gone. Answers are given to ``Controller.on_response``."""

    def set_brokers(self, live: Iterable[LiveBroker]) -> None:
        """The queues of all others end. A broker with another epoch, or another address, gets a new queue."""

    def send(self, request: Request) -> None: ...

    def close(self) -> None:
        """We are no longer controller: all queues end. ``set_brokers`` may follow, when we are controller again."""


class RequestBatch:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        #: By broker, the partitions, and whether each is new there.
        self._leaders: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        #: By broker, the partitions, and whether each is to be deleted.
        self._stops: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[TopicPartition, None] = {}

    def add_leader_and_isr(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Tell brokers who leads a partition, and everyone its metadata."""
        for broker in brokers:
            self._leaders[broker][partition] = is_new or self._leaders[broker].get(partition, False)
        self.add_update_metadata([partition])

    def add_stop_replica(self, broker: int, partition: TopicPartition, *, delete: bool = False) -> None:
        self._stops[broker][partition] = delete or self._stops[broker].get(partition, False)

    def add_update_metadata(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Tell brokers, or all of them, the metadata of partitions; without any, which brokers live."""
        self._metadata_brokers.update(self._context.broker_ids if brokers is None else brokers)
        self._metadata.update(dict.fromkeys(partitions))

    def requests(self) -> tuple[Request, ...]:
        """What has been collected; the batch is empty afterwards."""
        made: list[Request] = [*self._leader_requests(), *self._metadata_requests(), *self._stop_requests()]
        for collected in (self._leaders, self._stops, self._metadata_brokers, self._metadata):
            collected.clear()
        return tuple(made)

    def _leader_requests(self) -> Iterable[LeaderAndIsr]:
        for broker in self._alive(self._leaders):
            told = [
                LeaderAndIsrPartition(*partition, leadership, self._context.assignment(partition), is_new)
                for partition, is_new in self._leaders[broker.broker_id].items()
                if (leadership := self._leadership(partition)) is not None
            ]
            if told:
                leaders = {one.leadership.leader for one in told}
                live_leaders = tuple(self._alive(leaders))
                yield LeaderAndIsr(*self._head(broker), tuple(told), self._topic_ids(told), live_leaders)

    def _metadata_requests(self) -> Iterable[UpdateMetadata]:
        if not self._metadata_brokers:
            return
        told = tuple(
            self._metadata_of(partition, leadership)
            for partition in self._metadata
            if (leadership := self._leadership(partition)) is not None
        )
        topic_ids = self._topic_ids(told)
        live_brokers = tuple(self._alive(self._context.broker_ids))
        for broker in self._alive(self._metadata_brokers):
            yield UpdateMetadata(*self._head(broker), told, topic_ids, live_brokers)

    def _stop_requests(self) -> Iterable[StopReplica]:
        for broker in self._alive(self._stops):
            told = tuple(
                StoppedPartition(*partition, self._stop_epoch(partition), is_deleted)
                for partition, is_deleted in self._stops[broker.broker_id].items()
            )
            yield StopReplica(*self._head(broker), told)

    def _metadata_of(self, partition: TopicPartition, leadership: Leadership) -> MetadataPartition:
        replicas = self._context.assignment(partition).replicas
        online = self._context.online_replicas(partition)
        return MetadataPartition(
            *partition,
            LEADER_DURING_DELETE if self._context.is_to_be_deleted(partition[0]) else leadership.leader,
            leadership,
            replicas,
            tuple(replica for replica in replicas if replica not in online),
        )

    def _stop_epoch(self, partition: TopicPartition) -> int:
        if self._context.is_to_be_deleted(partition[0]):
            return EPOCH_DURING_DELETE
        leadership = self._context.leadership(partition)
        return NO_EPOCH if leadership is None else leadership.leader_epoch

    def _leadership(self, partition: TopicPartition) -> Leadership | None:
        """Nothing of a topic that is gone by now, or of a partition that never had a leader."""
        return self._context.leadership(partition) if self._context.has_partition(partition) else None

    def _alive(self, broker_ids: Iterable[int]) -> list[LiveBroker]:
        return [found for broker in sorted(broker_ids) if (found := self._context.broker(broker)) is not None]

    def _head(self, broker: LiveBroker) -> tuple[int, int, int, int]:
        return broker.broker_id, broker.epoch, self._context.controller_id, self._context.controller_epoch

    def _topic_ids(self, told: Iterable[LeaderAndIsrPartition | MetadataPartition]) -> dict[str, UUID | None]:
        return {topic: self._context.topic_id(topic) for topic in {one.topic for one in told}}
