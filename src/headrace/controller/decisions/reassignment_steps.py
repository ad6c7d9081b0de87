"""The steps of a reassignment. ``reassignments.py`` has the phases, and the table of a partition's state in each phase.

The order of the steps, with what a crash of the controller leaves:

1. If the leader is one of the replicas to drop, another in-sync replica becomes the leader. Nothing else has changed.
2. The topic's znode gets the reassignment. From here on, any controller finds the reassignment and continues it.
3. The dropped replicas are stopped and deleted.
4. While the target is not in sync: the leader epoch is incremented, so that the leader learns about the new replicas.
   The brokers of the new replicas are told to follow. Then the controller waits for ISR changes
   (:func:`on_isr_change`).
5. When the target is in sync: a replica of the target becomes the leader in a new epoch. The other replicas are stopped
   and deleted. The topic's znode is written last.

If the target falls out of sync between the read and the write of step 5, ZooKeeper rejects the write because of its
version. Then the reassignment is at step 4 again.
"""

from collections.abc import Iterable, Mapping, Sequence

from headrace.controller.decisions.broker_requests import RequestBatch
from headrace.controller.decisions.context import ControllerContext, Replica
from headrace.controller.decisions.effects import ClearReassignments, Steps, WriteTopic
from headrace.controller.decisions.leader_elections import Elected, ElectionOutcome, Refusal, elect_reassigned
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.reassignments import Assignment, Phase, check_move, dropped, phase
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.controller.decisions.state_changes import (
    move_replicas_online,
    read_states,
    remove_replicas,
    send,
    write_states,
)
from headrace.controller.decisions.topic_deletions import continue_deletions
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import InvalidReplicaAssignment, KafkaError, UnknownTopicOrPartition


def reassign(
    context: ControllerContext,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_change_count: bool = True,
    supersedes_znode: bool = False,
) -> Steps[dict[TopicPartition, KafkaError | None]]:
    """Starts to move partitions to their targets; returns the error of each partition, or None.

    :param targets: the brokers that each partition is to have; None cancels the partition's reassignment.
    :param supersedes_znode: these targets replace the targets in ``/admin/reassign_partitions``.
    """
    results: dict[TopicPartition, KafkaError | None] = {}
    started: dict[TopicPartition, Assignment] = {}
    # The current ISR decides whether replicas may be dropped.
    yield from read_states(context, [one for one in targets if context.leadership(one) is not None])
    for partition, target in targets.items():
        try:
            started[partition] = yield from _prepare(context, partition, target, may_change_count=may_change_count)
            results[partition] = None
        except KafkaError as error:
            # Its traceback refers to ``results``: without the cycle no garbage collection is needed.
            results[partition] = error.with_traceback(None)
    if supersedes_znode and started:
        # Before the topic is written. Otherwise, after a crash in between, the next controller would start the old
        # target again.
        yield ClearReassignments(tuple(started))
    for topic in dict.fromkeys(topic for topic, _ in started):
        of_topic = {partition: assignment for partition, assignment in started.items() if partition[0] == topic}
        yield WriteTopic(topic, context.topic_assignment(topic, of_topic))
        for partition, assignment in of_topic.items():
            brokers = dropped(context.assignment(partition), assignment)
            context.set_assignment(partition, assignment)
            yield from remove_replicas(context, [Replica(*partition, broker) for broker in brokers])
    yield from continue_reassignments(context, started)
    return results


def continue_reassignments(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Does the next steps of partitions that are being reassigned, or whose replicas have a new order."""
    copying: list[TopicPartition] = []
    complete: list[TopicPartition] = []
    for partition in partitions:
        leadership = context.leadership(partition)
        isr = leadership.isr if leadership else ()
        (complete if phase(context.assignment(partition), isr) is Phase.COMPLETE else copying).append(partition)
    yield from _copy(context, copying)
    completed = yield from _complete(context, complete)
    if any(context.is_to_be_deleted(topic) for topic, _ in completed):
        yield from continue_deletions(context)


def on_isr_change(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Sends ISRs that leaders have changed to all brokers, and completes reassignments whose target is in sync now."""
    known = [partition for partition in partitions if context.has_partition(partition)]
    if not known:
        return
    yield from read_states(context, known)
    batch = RequestBatch(context)
    batch.add_update_metadata(known)
    yield from send(batch)
    yield from continue_reassignments(
        context,
        [
            partition
            for partition in known
            if context.assignment(partition).is_moving
            and (leadership := context.leadership(partition)) is not None
            and phase(context.assignment(partition), leadership.isr) is Phase.COMPLETE
        ],
    )


def _prepare(
    context: ControllerContext, partition: TopicPartition, target: Sequence[int] | None, *, may_change_count: bool
) -> Steps[Assignment]:
    """Checks a reassignment and returns its assignment. Moves the leadership away from replicas to drop."""
    if not context.has_partition(partition) or context.is_to_be_deleted(partition[0]):
        raise UnknownTopicOrPartition(f"partition {partition[0]}-{partition[1]} does not exist")
    leadership = context.leadership(partition)
    if leadership is None:
        raise InvalidReplicaAssignment(
            f"{partition[0]}-{partition[1]} never had a leader, so there is no replica to copy from"
        )
    current, live = context.assignment(partition), context.live_brokers
    assignment = check_move(current, target, live, leadership.isr, may_change_count=may_change_count)
    if leadership.leader in dropped(current, assignment):
        staying = [broker for broker in assignment.replicas if broker in current.replicas]
        results = yield from write_states(context, [partition], lambda _: _lead_among(context, partition, staying))
        if partition in results.refused:
            raise InvalidReplicaAssignment(f"the leader cannot be dropped: {results.refused[partition].value}")
        batch = RequestBatch(context)
        batch.add_leader_and_isr(current.replicas, partition)
        context.move_partition(partition, ControllerPartitionState.ONLINE)
        yield from send(batch)
    return assignment


def _copy(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """Sends the new replicas to the leader, and the leader to the new replicas."""

    def next_epoch(partition: TopicPartition) -> ElectionOutcome:
        leadership = context.leadership(partition)
        if leadership is None:
            return Refusal.NO_REPLICA_ONLINE
        return Elected(leadership.next_epoch(context.controller_epoch), context.assignment(partition).replicas)

    results = yield from write_states(context, partitions, next_epoch)
    batch = RequestBatch(context)
    for partition in results.elected:
        assignment = context.assignment(partition)
        batch.add_leader_and_isr(assignment.origin, partition)
        # A new replica may be created on any disk. A replica that existed and is missing must not be created on another
        # disk.
        batch.add_leader_and_isr(assignment.adding, partition, is_new=True)
    for partition in partitions:
        for broker in context.assignment(partition).adding:
            replica = Replica(*partition, broker)
            if context.replica_state(replica) is ControllerReplicaState.NON_EXISTENT:
                context.move_replica(replica, ControllerReplicaState.NEW)
    yield from send(batch)


def _complete(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Steps[list[TopicPartition]]:
    """Ends reassignments whose target is in sync; returns the partitions that are no longer being reassigned."""
    for partition in partitions:
        added = [Replica(*partition, broker) for broker in context.assignment(partition).adding]
        yield from move_replicas_online(
            context,
            [
                replica
                for replica in added
                if context.replica_state(replica) in (ControllerReplicaState.NEW, ControllerReplicaState.OFFLINE)
                and context.is_online(replica.broker, partition)
            ],
        )
    results = yield from write_states(context, partitions, lambda partition: _lead_in_target(context, partition))
    batch = RequestBatch(context)
    moved, removed = set(), []
    for partition in results.elected:
        assignment = context.assignment(partition)
        if assignment.is_moving:
            moved.add(partition[0])
        removed += [Replica(*partition, broker) for broker in assignment.removing]
        context.set_assignment(partition, assignment.completed())
        context.move_partition(partition, ControllerPartitionState.ONLINE)
        batch.add_leader_and_isr(assignment.target, partition)
    yield from send(batch)
    yield from remove_replicas(context, removed)
    for topic in sorted(moved):
        yield WriteTopic(topic, context.topic_assignment(topic))
    # A cancelled reassignment has ended even if no replica can lead the partition now.
    ended = [partition for partition in partitions if not context.assignment(partition).is_moving]
    if ended:
        yield ClearReassignments(tuple(ended))
        batch.add_update_metadata(ended)
        yield from send(batch)
    return ended


def _lead_in_target(context: ControllerContext, partition: TopicPartition) -> ElectionOutcome:
    """Keeps the leader if it is in the target, in a new epoch. A refusal if the target is not in sync any more."""
    assignment, leadership = context.assignment(partition), context.leadership(partition)
    if leadership is None or phase(assignment, leadership.isr) is Phase.COPYING:
        return Refusal.TARGET_NOT_IN_SYNC
    return _lead_among(context, partition, assignment.target)


def _lead_among(context: ControllerContext, partition: TopicPartition, replicas: Sequence[int]) -> ElectionOutcome:
    leadership = context.leadership(partition)
    assert leadership is not None, partition
    if leadership.leader in replicas and context.is_online(leadership.leader, partition):
        return Elected(leadership.next_epoch(context.controller_epoch), tuple(replicas))
    return elect_reassigned(leadership, replicas, context.online_replicas(partition), context.controller_epoch)
