"""Holds what the controller knows about the cluster: a copy of the znode tree, and the states of partitions and
replicas.

:class:`ControllerContext` is mutable; the values inside are immutable. The context is filled from ZooKeeper when a
broker becomes the controller. After that, only the controller's own changes and ZooKeeper's watches update the context.
The context does no I/O and makes no decisions. Frequent questions have an index: the partitions of a broker, the
partitions that a broker leads, the partitions in a state, the partitions that are being reassigned.

A replica is online when its broker is alive and the disk of the replica works. A broker that is shutting down is alive,
but it is not a candidate for leadership. Callers that want such brokers too pass ``include_shutting_down``.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.controller.decisions.leader_elections import NO_LEADER, Leadership
from headrace.controller.decisions.partition_states import ControllerPartitionState, check_partition_transition
from headrace.controller.decisions.reassignments import Assignment
from headrace.controller.decisions.replica_states import ControllerReplicaState, check_replica_transition
from headrace.coordination.znodes import BrokerRegistration, TopicAssignment, TopicPartition


@dataclass(frozen=True, slots=True)
class LiveBroker:
    broker_id: int
    #: The transaction that created the registration. It differs after every restart (KIP-380).
    epoch: int
    registration: BrokerRegistration

    @property
    def rack(self) -> str | None:
        return self.registration.rack


class Replica(NamedTuple):
    topic: str
    partition: int
    broker: int

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition


class ControllerContext:
    def __init__(self, controller_id: int, controller_epoch: int) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        #: ``unclean.leader.election.enable`` of the brokers, and of the topics that set it.
        self.is_unclean_by_default = False
        self.unclean_topics: dict[str, bool] = {}
        #: How many unclean elections there were in this controller epoch.
        self.unclean_elections = 0
        self._brokers: dict[int, LiveBroker] = {}
        self._shutting_down: set[int] = set()
        #: By broker, the partitions on a failed disk of that broker.
        self._failed: dict[int, set[TopicPartition]] = {}
        self._topic_ids: dict[str, UUID | None] = {}
        self._assignments: dict[str, dict[int, Assignment]] = {}
        self._leaderships: dict[TopicPartition, Leadership] = {}
        self._partition_states: dict[TopicPartition, ControllerPartitionState] = {}
        self._replica_states: dict[Replica, ControllerReplicaState] = {}
        self._to_delete: set[str] = set()
        self._deletion_started: set[str] = set()
        self._on_broker: dict[int, set[TopicPartition]] = defaultdict(set)
        self._led_by: dict[int, set[TopicPartition]] = defaultdict(set)
        self._in_state: dict[ControllerPartitionState, set[TopicPartition]] = {
            state: set() for state in ControllerPartitionState
        }
        self._moving: set[TopicPartition] = set()

    # Brokers

    def add_broker(self, broker: LiveBroker) -> None:
        """Adds a broker, or updates its addresses. After a restart (another epoch) its disks count as working again."""
        known = self._brokers.get(broker.broker_id)
        if known is None or known.epoch != broker.epoch:
            self._failed.pop(broker.broker_id, None)
            self._shutting_down.discard(broker.broker_id)
        self._brokers[broker.broker_id] = broker

    def remove_broker(self, broker_id: int) -> None:
        self._brokers.pop(broker_id, None)
        self._shutting_down.discard(broker_id)
        self._failed.pop(broker_id, None)

    def start_broker_shutdown(self, broker_id: int) -> None:
        """Marks the start of a controlled shutdown."""
        assert broker_id in self._brokers, broker_id
        self._shutting_down.add(broker_id)

    def broker(self, broker_id: int) -> LiveBroker | None:
        """The broker, if it is alive; it may be shutting down."""
        return self._brokers.get(broker_id)

    @property
    def brokers(self) -> Collection[LiveBroker]:
        """All live brokers, including brokers that are shutting down."""
        return self._brokers.values()

    @property
    def broker_ids(self) -> list[int]:
        return sorted(self._brokers)

    @property
    def shutting_down_brokers(self) -> frozenset[int]:
        return frozenset(self._shutting_down)

    @property
    def live_brokers(self) -> list[int]:
        """The ids of the live brokers that are not shutting down."""
        return [broker for broker in sorted(self._brokers) if broker not in self._shutting_down]

    @property
    def racks(self) -> dict[int, str | None]:
        return {broker: self._brokers[broker].rack for broker in self.live_brokers}

    def mark_replica_failed(self, broker_id: int, partition: TopicPartition) -> None:
        """The disk of the replica has failed."""
        self._failed.setdefault(broker_id, set()).add(partition)

    def mark_replica_working(self, broker_id: int, partition: TopicPartition) -> None:
        self._failed.get(broker_id, set()).discard(partition)

    def failed_replicas(self, broker_id: int) -> frozenset[TopicPartition]:
        return frozenset(self._failed.get(broker_id, ()))

    def is_online(self, broker_id: int, partition: TopicPartition, *, include_shutting_down: bool = False) -> bool:
        if broker_id not in self._brokers or (broker_id in self._shutting_down and not include_shutting_down):
            return False
        return partition not in self._failed.get(broker_id, ())

    def online_replicas(self, partition: TopicPartition, *, include_shutting_down: bool = False) -> frozenset[int]:
        """The online replicas of a partition."""
        return frozenset(
            broker
            for broker in self.assignment(partition).replicas
            if self.is_online(broker, partition, include_shutting_down=include_shutting_down)
        )

    # Topics

    def add_topic(self, topic: str, assigned: TopicAssignment) -> list[TopicPartition]:
        """Adds a topic from the content of its znode; returns the partitions that are new. Known partitions do not
        change.
        """
        self._topic_ids[topic] = assigned.topic_id
        known = self._assignments.setdefault(topic, {})
        added = [(topic, index) for index in sorted(assigned.partitions) if index not in known]
        for partition in added:
            replicas, adding, removing = (
                tuple(part.get(partition[1], ()))
                for part in (assigned.partitions, assigned.adding_replicas, assigned.removing_replicas)
            )
            self.set_assignment(partition, Assignment(replicas, adding, removing))
        return added

    def remove_topic(self, topic: str) -> None:
        """Removes everything about a topic."""
        for replica in self.replicas_of_topic(topic):
            self._replica_states.pop(replica, None)
        for partition in self.partitions_of_topic(topic):
            self.set_assignment(partition, Assignment(()))
            self._remove_leadership(partition)
            self._in_state[self._partition_states.pop(partition, ControllerPartitionState.NON_EXISTENT)].discard(
                partition
            )
            for failed in self._failed.values():
                failed.discard(partition)
        self._assignments.pop(topic, None)
        self._topic_ids.pop(topic, None)
        self._to_delete.discard(topic)
        self._deletion_started.discard(topic)
        self.unclean_topics.pop(topic, None)

    def has_topic(self, topic: str) -> bool:
        return topic in self._assignments

    def has_partition(self, partition: TopicPartition) -> bool:
        return partition[1] in self._assignments.get(partition[0], {})

    @property
    def topics(self) -> Collection[str]:
        return self._assignments.keys()

    def topic_id(self, topic: str) -> UUID | None:
        return self._topic_ids.get(topic)

    def topic_assignment(
        self, topic: str, changes: Mapping[TopicPartition, Assignment] | None = None
    ) -> TopicAssignment:
        """The content for the topic's znode.

        :param changes: assignments of this topic's partitions that replace those in the context.
        """
        changed = {index: assignment for (_, index), assignment in (changes or {}).items()}
        assignments = sorted({**self._assignments[topic], **changed}.items())
        return TopicAssignment(
            self._topic_ids[topic],
            {index: assignment.replicas for index, assignment in assignments},
            {index: assignment.adding for index, assignment in assignments if assignment.adding},
            {index: assignment.removing for index, assignment in assignments if assignment.removing},
        )

    def allows_unclean(self, topic: str) -> bool:
        return self.unclean_topics.get(topic, self.is_unclean_by_default)

    # Partitions

    def partitions(self) -> Iterator[TopicPartition]:
        return ((topic, index) for topic, partitions in self._assignments.items() for index in partitions)

    def partitions_of_topic(self, topic: str) -> list[TopicPartition]:
        return [(topic, index) for index in sorted(self._assignments.get(topic, {}))]

    def partitions_of_broker(self, broker_id: int) -> frozenset[TopicPartition]:
        return frozenset(self._on_broker.get(broker_id, ()))

    def partitions_led_by(self, broker_id: int) -> frozenset[TopicPartition]:
        return frozenset(self._led_by.get(broker_id, ()))

    def partitions_in(self, *states: ControllerPartitionState) -> list[TopicPartition]:
        return sorted(partition for state in states for partition in self._in_state[state])

    def count_in(self, *states: ControllerPartitionState) -> int:
        return sum(len(self._in_state[state]) for state in states)

    @property
    def partition_count(self) -> int:
        return sum(map(len, list(self._assignments.values())))

    def count_not_preferred(self) -> int:
        """The number of partitions whose leader is not their first replica. May be called from any thread."""
        return sum(
            leadership.leader != assignment.replicas[0]
            for (topic, index), leadership in list(self._leaderships.items())
            if topic not in self._to_delete
            and (assignment := self._assignments.get(topic, {}).get(index)) is not None
            and assignment.replicas
        )

    def assignment(self, partition: TopicPartition) -> Assignment:
        return self._assignments[partition[0]][partition[1]]

    def set_assignment(self, partition: TopicPartition, assignment: Assignment) -> None:
        """Sets an assignment. Replicas that are no longer assigned keep their states until they are stopped."""
        partitions = self._assignments.setdefault(partition[0], {})
        known = partitions.get(partition[1])
        before, after = set(known.replicas if known else ()), set(assignment.replicas)
        for broker in before - after:
            self._on_broker[broker].discard(partition)
        for broker in after - before:
            self._on_broker[broker].add(partition)
        partitions[partition[1]] = assignment
        (self._moving.add if assignment.is_moving else self._moving.discard)(partition)

    @property
    def moving_partitions(self) -> list[TopicPartition]:
        """The partitions that are being reassigned."""
        return sorted(self._moving)

    def leadership(self, partition: TopicPartition) -> Leadership | None:
        return self._leaderships.get(partition)

    @property
    def leaderships(self) -> Mapping[TopicPartition, Leadership]:
        return self._leaderships

    def set_leadership(self, partition: TopicPartition, leadership: Leadership) -> None:
        self._remove_leadership(partition)
        self._leaderships[partition] = leadership
        if leadership.leader != NO_LEADER:
            self._led_by[leadership.leader].add(partition)

    def has_leader_online(self, partition: TopicPartition) -> bool:
        """Whether the leader is online. A broker that is shutting down leads its partitions until it has stopped."""
        leadership = self._leaderships.get(partition)
        return leadership is not None and self.is_online(leadership.leader, partition, include_shutting_down=True)

    def _remove_leadership(self, partition: TopicPartition) -> None:
        known = self._leaderships.pop(partition, None)
        if known is not None and known.leader != NO_LEADER:
            self._led_by[known.leader].discard(partition)

    def partition_state(self, partition: TopicPartition) -> ControllerPartitionState:
        return self._partition_states.get(partition, ControllerPartitionState.NON_EXISTENT)

    def move_partition(self, partition: TopicPartition, state: ControllerPartitionState) -> None:
        """
        :raises IllegalTransition: nothing has changed then.
        """
        check_partition_transition(partition, self.partition_state(partition), state)
        self._put_partition_state(partition, state)

    def _put_partition_state(self, partition: TopicPartition, state: ControllerPartitionState) -> None:
        self._in_state[self.partition_state(partition)].discard(partition)
        if state is ControllerPartitionState.NON_EXISTENT:
            self._partition_states.pop(partition, None)
            return
        self._partition_states[partition] = state
        self._in_state[state].add(partition)

    # Replicas

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        return [
            Replica(*partition, broker) for partition in partitions for broker in self.assignment(partition).replicas
        ]

    def replicas_of_topic(self, topic: str) -> list[Replica]:
        return self.replicas_of(self.partitions_of_topic(topic))

    def replicas_on(self, brokers: Iterable[int]) -> list[Replica]:
        return [
            Replica(*partition, broker)
            for broker in sorted(set(brokers))
            for partition in sorted(self._on_broker.get(broker, ()))
        ]

    def replica_state(self, replica: Replica) -> ControllerReplicaState:
        return self._replica_states.get(replica, ControllerReplicaState.NON_EXISTENT)

    def move_replica(self, replica: Replica, state: ControllerReplicaState) -> None:
        """
        :raises IllegalTransition: nothing has changed then.
        """
        check_replica_transition(replica, self.replica_state(replica), state)
        if state is ControllerReplicaState.NON_EXISTENT:
            self._replica_states.pop(replica, None)
        else:
            self._replica_states[replica] = state

    # Deletions

    def queue_deletion(self, topic: str) -> None:
        assert self.has_topic(topic), topic
        self._to_delete.add(topic)

    def start_deletion(self, topic: str) -> None:
        """From now on the topic's partitions are not served. A deletion that has started cannot be cancelled."""
        assert topic in self._to_delete, topic
        self._deletion_started.add(topic)

    def is_to_be_deleted(self, topic: str) -> bool:
        return topic in self._to_delete

    def has_deletion_started(self, topic: str) -> bool:
        return topic in self._deletion_started

    @property
    def topics_to_delete(self) -> list[str]:
        return sorted(self._to_delete)

    # Controller failover

    def initialise_states(self) -> None:
        """Derives the states of partitions and replicas from what was read from ZooKeeper.

        The replicas of a topic to delete whose brokers are down may have been in deletion. The controller deletes them
        only when their brokers start again.
        """
        self._partition_states.clear()
        self._replica_states.clear()
        for members in self._in_state.values():
            members.clear()
        for partition in self.partitions():
            state = ControllerPartitionState.NEW
            if partition in self._leaderships:
                state = (
                    ControllerPartitionState.ONLINE
                    if self.has_leader_online(partition)
                    else ControllerPartitionState.OFFLINE
                )
            self._put_partition_state(partition, state)
            offline = (
                ControllerReplicaState.DELETION_INELIGIBLE
                if partition[0] in self._to_delete
                else ControllerReplicaState.OFFLINE
            )
            for broker in self.assignment(partition).replicas:
                replica_state = ControllerReplicaState.ONLINE if self.is_online(broker, partition) else offline
                self._replica_states[Replica(*partition, broker)] = replica_state
