"""Deletes topics, replica by replica.

A request to delete a topic is a znode ``/admin/delete_topics/T``. The deletion waits while a partition of the topic is
being reassigned. When the deletion starts, the partitions move to NON_EXISTENT, all brokers remove them from their
metadata, and each broker with an online replica is told to delete the log. Offline replicas are waited for, because
otherwise they would come back with old data. When a broker starts, it is told to delete its replicas. After the last
replica has been deleted, the znodes of the topic are deleted. Only then can a topic with the same name be created. A
new controller starts the deletion from the beginning; brokers confirm replicas that they have deleted before.

The next step depends only on the context (:func:`next_deletions`), whatever the change was: a broker started, a broker
responded, a reassignment ended. A replica whose broker responded with an error (a failed disk) is not tried again until
the broker has restarted.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from headrace.controller.decisions.broker_requests import RequestBatch
from headrace.controller.decisions.context import ControllerContext, Replica
from headrace.controller.decisions.effects import DeleteTopic, Steps
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.controller.decisions.state_changes import send
from headrace.coordination.znodes import TopicPartition


class DeletionState(Enum):
    """The state of a topic's deletion."""

    #: A partition of the topic is being reassigned.
    BLOCKED = "blocked"
    #: The next step can be done now.
    READY = "ready"
    #: Brokers were told to delete their replicas, and some have not responded yet.
    IN_PROGRESS = "in progress"
    #: The replicas that are left cannot be deleted now.
    WAITING = "waiting"
    FINISHED = "finished"


class NextDeletions(NamedTuple):
    """The steps of all deletions that can be done now."""

    finished: tuple[str, ...]
    #: Topics whose deletion starts now.
    starting: tuple[str, ...]
    #: Replicas to delete now.
    online: tuple[Replica, ...]
    #: Replicas that have to wait for their broker.
    offline: tuple[Replica, ...]


#: Replicas in these states need no further step now.
_TRIED = frozenset(
    {
        ControllerReplicaState.DELETION_STARTED,
        ControllerReplicaState.DELETION_SUCCESSFUL,
        ControllerReplicaState.DELETION_INELIGIBLE,
    }
)


def deletion_state(context: ControllerContext, topic: str) -> DeletionState:
    states = {context.replica_state(replica) for replica in context.replicas_of_topic(topic)}
    if not context.has_deletion_started(topic):
        moving = any(context.assignment(partition).is_moving for partition in context.partitions_of_topic(topic))
        return DeletionState.BLOCKED if moving else DeletionState.READY
    if states <= {ControllerReplicaState.DELETION_SUCCESSFUL}:
        return DeletionState.FINISHED
    if states - _TRIED:
        return DeletionState.READY
    return DeletionState.IN_PROGRESS if ControllerReplicaState.DELETION_STARTED in states else DeletionState.WAITING


def next_deletions(context: ControllerContext) -> NextDeletions:
    states = {topic: deletion_state(context, topic) for topic in context.topics_to_delete}
    ready = [topic for topic, state in states.items() if state is DeletionState.READY]
    online: list[Replica] = []
    offline: list[Replica] = []
    for topic in ready:
        for replica in context.replicas_of_topic(topic):
            if context.replica_state(replica) not in _TRIED:
                is_online = context.is_online(replica.broker, replica.topic_partition, include_shutting_down=True)
                (online if is_online else offline).append(replica)
    return NextDeletions(
        tuple(topic for topic, state in states.items() if state is DeletionState.FINISHED),
        tuple(topic for topic in ready if not context.has_deletion_started(topic)),
        tuple(online),
        tuple(offline),
    )


def replicas_to_delete(context: ControllerContext) -> list[Replica]:
    """The replicas that are left, of all topics to delete."""
    return [
        replica
        for topic in context.topics_to_delete
        for replica in context.replicas_of_topic(topic)
        if context.replica_state(replica) is not ControllerReplicaState.DELETION_SUCCESSFUL
    ]


def ineligible_replicas(context: ControllerContext) -> list[Replica]:
    """The replicas to delete that are offline, or whose deletion failed."""
    left = replicas_to_delete(context)
    return [one for one in left if context.replica_state(one) is ControllerReplicaState.DELETION_INELIGIBLE]


def ineligible_topics(context: ControllerContext) -> set[str]:
    """The topics whose deletion cannot end now: a replica is ineligible, or a partition is being reassigned."""
    blocked = {topic for topic in context.topics_to_delete if deletion_state(context, topic) is DeletionState.BLOCKED}
    return blocked | {replica.topic for replica in ineligible_replicas(context)}


def continue_deletions(context: ControllerContext) -> Steps[None]:
    """Does all steps of deletions that can be done now."""
    while (step := next_deletions(context)) != NextDeletions((), (), (), ()):
        for topic in step.finished:
            yield DeleteTopic(topic)
            context.remove_topic(topic)
        batch = RequestBatch(context)
        for topic in step.starting:
            _start(context, topic)
            batch.add_update_metadata(context.partitions_of_topic(topic))
        # Brokers remove the topic from their metadata before they delete its logs.
        yield from send(batch)
        for replica in step.offline:
            _stop(context, replica)
            context.move_replica(replica, ControllerReplicaState.DELETION_INELIGIBLE)
        for replica in step.online:
            _stop(context, replica)
            context.move_replica(replica, ControllerReplicaState.DELETION_STARTED)
            batch.add_stop_replica(replica.broker, replica.topic_partition, delete=True)
        yield from send(batch)


def delete_topics(context: ControllerContext, topics: Iterable[str]) -> Steps[list[str]]:
    """Starts to delete topics; returns the topics that do not exist, so that the caller can remove their requests."""
    unknown = []
    for topic in topics:
        if context.has_topic(topic):
            context.queue_deletion(topic)
        else:
            unknown.append(topic)
    yield from continue_deletions(context)
    return unknown


def on_stop_replica_response(
    context: ControllerContext, broker: int, deleted: Iterable[TopicPartition], failed: Iterable[TopicPartition]
) -> Steps[None]:
    """Processes a broker's response to a StopReplica that deletes. Ignores replicas that are not in deletion."""
    for partitions, state in (
        (deleted, ControllerReplicaState.DELETION_SUCCESSFUL),
        (failed, ControllerReplicaState.DELETION_INELIGIBLE),
    ):
        for partition in partitions:
            replica = Replica(*partition, broker)
            if context.replica_state(replica) is ControllerReplicaState.DELETION_STARTED:
                context.move_replica(replica, state)
    yield from continue_deletions(context)


def fail_replica_deletions(context: ControllerContext, replicas: Iterable[Replica]) -> None:
    """Marks replicas in deletion as ineligible, because their broker failed and will not respond."""
    for replica in replicas:
        if context.replica_state(replica) is ControllerReplicaState.DELETION_STARTED:
            context.move_replica(replica, ControllerReplicaState.DELETION_INELIGIBLE)


def retry_replica_deletions(context: ControllerContext, replicas: Iterable[Replica]) -> None:
    """Makes replicas of deleted topics ready for the next attempt, because their broker started. They get no leader."""
    for replica in replicas:
        if context.replica_state(replica) is ControllerReplicaState.DELETION_INELIGIBLE:
            context.move_replica(replica, ControllerReplicaState.OFFLINE)


def _start(context: ControllerContext, topic: str) -> None:
    for partition in context.partitions_of_topic(topic):
        context.move_partition(partition, ControllerPartitionState.OFFLINE)
        context.move_partition(partition, ControllerPartitionState.NON_EXISTENT)
    context.start_deletion(topic)


def _stop(context: ControllerContext, replica: Replica) -> None:
    """Changes only the state: the request that deletes the replica also stops it, and its ISR does not matter."""
    context.move_replica(replica, ControllerReplicaState.OFFLINE)
