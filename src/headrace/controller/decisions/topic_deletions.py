"""Deleting topics, replica by replica.

A topic that someone wants deleted (``/admin/delete_topics/T``) waits while one of its partitions is being reassigned.
Then it begins: its partitions are no more, all brokers are told so, and every replica that is online is told to delete
its log. Dead replicas are waited for, as they would come back with old data; when a broker returns, its replicas are
told then. When the last one has answered the topic's znodes go, and only then may there be a new topic of that name. A
controller that takes over begins again; a replica that is deleted already says so.

What is next follows from the context alone (:func:`next_deletions`), whatever it was that has changed: a broker came
back, an answer, the end of a reassignment. A replica that answered with an error (a broken disk) is not asked again
until its broker has been restarted.
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
    #: A partition is being reassigned.
    BLOCKED = "blocked"
    #: There is something to do.
    READY = "ready"
    #: Replicas have been told, and have not all answered.
    UNDER_WAY = "under way"
    #: Replicas are left that cannot be told.
    WAITING = "waiting"
    FINISHED = "finished"


class NextDeletions(NamedTuple):
    finished: tuple[str, ...]
    #: Topics of which this is the first attempt.
    begun: tuple[str, ...]
    #: Replicas to tell, and those that cannot be told.
    told: tuple[Replica, ...]
    dead: tuple[Replica, ...]


#: Of these replicas nothing more can be done for now.
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
    return DeletionState.UNDER_WAY if ControllerReplicaState.DELETION_STARTED in states else DeletionState.WAITING


def next_deletions(context: ControllerContext) -> NextDeletions:
    standings = {topic: deletion_state(context, topic) for topic in context.topics_to_delete}
    ready = [topic for topic, stands in standings.items() if stands is DeletionState.READY]
    told: list[Replica] = []
    dead: list[Replica] = []
    for topic in ready:
        for replica in context.replicas_of_topic(topic):
            if context.replica_state(replica) not in _TRIED:
                is_online = context.is_online(replica.broker, replica.topic_partition, include_shutting_down=True)
                (told if is_online else dead).append(replica)
    return NextDeletions(
        tuple(topic for topic, stands in standings.items() if stands is DeletionState.FINISHED),
        tuple(topic for topic in ready if not context.has_deletion_started(topic)),
        tuple(told),
        tuple(dead),
    )


def replicas_to_delete(context: ControllerContext) -> list[Replica]:
    """Those that are left, of topics that someone wants deleted."""
    return [
        replica
        for topic in context.topics_to_delete
        for replica in context.replicas_of_topic(topic)
        if context.replica_state(replica) is not ControllerReplicaState.DELETION_SUCCESSFUL
    ]


def ineligible_replicas(context: ControllerContext) -> list[Replica]:
    """Of those that are left, those that are dead or could not be deleted."""
    left = replicas_to_delete(context)
    return [one for one in left if context.replica_state(one) is ControllerReplicaState.DELETION_INELIGIBLE]


def ineligible_topics(context: ControllerContext) -> set[str]:
    """Topics whose deletion cannot end now: a replica is ineligible, or a partition is being reassigned."""
    blocked = {topic for topic in context.topics_to_delete if deletion_state(context, topic) is DeletionState.BLOCKED}
    return blocked | {replica.topic for replica in ineligible_replicas(context)}


def continue_deletions(context: ControllerContext) -> Steps[None]:
    """Everything about deletions that can be done now."""
    while (step := next_deletions(context)) != NextDeletions((), (), (), ()):
        for topic in step.finished:
            yield DeleteTopic(topic)
            context.remove_topic(topic)
        batch = RequestBatch(context)
        for topic in step.begun:
            _begin(context, topic)
            batch.add_update_metadata(context.partitions_of_topic(topic))
        # Brokers forget the topic before its logs go.
        yield from send(batch)
        for replica in step.dead:
            _stop(context, replica)
            context.move_replica(replica, ControllerReplicaState.DELETION_INELIGIBLE)
        for replica in step.told:
            _stop(context, replica)
            context.move_replica(replica, ControllerReplicaState.DELETION_STARTED)
            batch.add_stop_replica(replica.broker, replica.topic_partition, delete=True)
        yield from send(batch)


def delete_topics(context: ControllerContext, topics: Iterable[str]) -> Steps[list[str]]:
    """Those that do not exist are returned: whoever wished their deletion is to be rid of the wish."""
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
    """A broker's answer to a StopReplica that deletes. Of replicas that were not asked it means nothing."""
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
    """Of topics whose deletion has begun: no answer will come."""
    for replica in replicas:
        if context.replica_state(replica) is ControllerReplicaState.DELETION_STARTED:
            context.move_replica(replica, ControllerReplicaState.DELETION_INELIGIBLE)


def retry_replica_deletions(context: ControllerContext, replicas: Iterable[Replica]) -> None:
    """Of topics whose deletion has begun: they can be told now. That they should follow a leader they never hear."""
    for replica in replicas:
        if context.replica_state(replica) is ControllerReplicaState.DELETION_INELIGIBLE:
            context.move_replica(replica, ControllerReplicaState.OFFLINE)


def _begin(context: ControllerContext, topic: str) -> None:
    for partition in context.partitions_of_topic(topic):
        context.move_partition(partition, ControllerPartitionState.OFFLINE)
        context.move_partition(partition, ControllerPartitionState.NON_EXISTENT)
    context.start_deletion(topic)


def _stop(context: ControllerContext, replica: Replica) -> None:
    """For the state alone: the request that deletes stops it as well, and its ISR matters no more."""
    context.move_replica(replica, ControllerReplicaState.OFFLINE)
