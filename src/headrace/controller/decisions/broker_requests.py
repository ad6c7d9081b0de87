"""The controller's requests to brokers as plain values: LeaderAndIsr, StopReplica and UpdateMetadata.

A :class:`RequestBatch` collects what a change means for the brokers, and then builds at most one request of each kind
per broker, for any number of partitions. The order is LeaderAndIsr, UpdateMetadata, StopReplica; a broker receives the
requests in this order. The batch reads the context only when it builds the requests. So a partition that changed twice
is sent once, in its final state. For each partition in a LeaderAndIsr request, every live broker gets an
UpdateMetadata. Brokers that are down get no requests: they receive everything when they start.

The UpdateMetadata requests to all brokers share one tuple of partitions, so that the tuple is encoded only once.

A :class:`Channel` sends the requests to the brokers. The responses are defined here, too.
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

#: As a leader in UpdateMetadata: the partition is being deleted, so brokers remove it from their metadata.
LEADER_DURING_DELETE = -2
#: As a leader epoch in StopReplica: the topic is being deleted, whatever epoch the replica has (KIP-570).
EPOCH_DURING_DELETE = -2
#: As a leader epoch in StopReplica: the partition never had a leader.
NO_EPOCH = -1


class LeaderAndIsrPartition(NamedTuple):
    topic: str
    partition: int
    leadership: Leadership
    assignment: Assignment
    #: The replica may not exist yet, and may be created on any disk that works.
    is_new: bool


class LeaderAndIsr(NamedTuple):
    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    topic_ids: dict[str, UUID | None]
    #: The brokers that lead these partitions, with their addresses.
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
    #: The log is deleted, too.
    is_deleted: bool


class StopReplica(NamedTuple):
    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    partitions: tuple[StoppedPartition, ...]


Request: TypeAlias = LeaderAndIsr | UpdateMetadata | StopReplica


class LeaderAndIsrResponse(NamedTuple):
    """The response to a LeaderAndIsr request. ``error`` is about the whole request; then there are no partitions."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


class StopReplicaResponse(NamedTuple):
    """The response to a StopReplica request. ``error`` is about the whole request; then there are no partitions."""

    error: ErrorCode
    partitions: dict[TopicPartition, ErrorCode]


class Channel(Protocol):
    """Sends requests to brokers, in order per broker. Repeats a request until the broker has responded or is gone.

    Passes the responses to ``Controller.on_response``.
    """

    def set_brokers(self, live: Iterable[LiveBroker]) -> None:
        """Ends the queues of all other brokers. A broker with another epoch or another address gets a new queue."""

    def send(self, request: Request) -> None: ...

    def close(self) -> None:
        """Ends all queues, because this broker is no longer the controller. ``set_brokers`` may start them again."""


class RequestBatch:
    """Collects changes, and builds at most one request of each kind per broker."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        #: By broker, the partitions, and whether each replica is new.
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        #: By broker, the partitions, and whether each replica is to be deleted.
        self._stops: dict[int, dict[TopicPartition, bool]] = defaultdict(dict)
        self._update_metadata_brokers: set[int] = set()
        self._update_metadata: dict[TopicPartition, None] = {}

    def add_leader_and_isr(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Sends a partition's leader to some brokers, and the partition's metadata to all brokers."""
        for broker in brokers:
            self._leader_and_isr[broker][partition] = is_new or self._leader_and_isr[broker].get(partition, False)
        self.add_update_metadata([partition])

    def add_stop_replica(self, broker: int, partition: TopicPartition, *, delete: bool = False) -> None:
        self._stops[broker][partition] = delete or self._stops[broker].get(partition, False)

    def add_update_metadata(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Sends the metadata of partitions and the list of live brokers.

        :param brokers: None for all brokers.
        """
        self._update_metadata_brokers.update(self._context.broker_ids if brokers is None else brokers)
        self._update_metadata.update(dict.fromkeys(partitions))

    def requests(self) -> tuple[Request, ...]:
        """Builds the requests. The batch is empty afterwards."""
        built: list[Request] = [*self._leader_requests(), *self._metadata_requests(), *self._stop_requests()]
        for collected in (self._leader_and_isr, self._stops, self._update_metadata_brokers, self._update_metadata):
            collected.clear()
        return tuple(built)

    def _leader_requests(self) -> Iterable[LeaderAndIsr]:
        for broker in self._alive(self._leader_and_isr):
            partitions = [
                LeaderAndIsrPartition(*partition, leadership, self._context.assignment(partition), is_new)
                for partition, is_new in self._leader_and_isr[broker.broker_id].items()
                if (leadership := self._leadership(partition)) is not None
            ]
            if partitions:
                leaders = {one.leadership.leader for one in partitions}
                live_leaders = tuple(self._alive(leaders))
                yield LeaderAndIsr(*self._head(broker), tuple(partitions), self._topic_ids(partitions), live_leaders)

    def _metadata_requests(self) -> Iterable[UpdateMetadata]:
        if not self._update_metadata_brokers:
            return
        partitions = tuple(
            self._metadata_of(partition, leadership)
            for partition in self._update_metadata
            if (leadership := self._leadership(partition)) is not None
        )
        topic_ids = self._topic_ids(partitions)
        live_brokers = tuple(self._alive(self._context.broker_ids))
        for broker in self._alive(self._update_metadata_brokers):
            yield UpdateMetadata(*self._head(broker), partitions, topic_ids, live_brokers)

    def _stop_requests(self) -> Iterable[StopReplica]:
        for broker in self._alive(self._stops):
            partitions = tuple(
                StoppedPartition(*partition, self._stop_epoch(partition), is_deleted)
                for partition, is_deleted in self._stops[broker.broker_id].items()
            )
            yield StopReplica(*self._head(broker), partitions)

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
        """None if the topic was deleted in the meantime, or if the partition never had a leader."""
        return self._context.leadership(partition) if self._context.has_partition(partition) else None

    def _alive(self, broker_ids: Iterable[int]) -> list[LiveBroker]:
        return [found for broker in sorted(broker_ids) if (found := self._context.broker(broker)) is not None]

    def _head(self, broker: LiveBroker) -> tuple[int, int, int, int]:
        return broker.broker_id, broker.epoch, self._context.controller_id, self._context.controller_epoch

    def _topic_ids(self, partitions: Iterable[LeaderAndIsrPartition | MetadataPartition]) -> dict[str, UUID | None]:
        return {topic: self._context.topic_id(topic) for topic in {one.topic for one in partitions}}
