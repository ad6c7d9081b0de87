"""The steps of a reassignment; ``reassignments.py`` has its phases, and the table of how a partition looks in each.

In the order of a move, with what a crash of the controller leaves:

1. A replica that is to be dropped may lead: another in sync takes over first. Nothing else has changed yet.
2. The topic's znode gets the move. From here on any controller knows of it, and goes on.
3. Dropped replicas are stopped and deleted.
4. While the target is not in sync: the leader epoch is raised, so that the leader hears of the replicas that are
   coming, and those are told to follow. Then ISRs are waited for (a notification of one calls :func:`on_isr_change`).
5. When it is: a replica of the target leads, in a new epoch; the others are stopped and deleted; last, the znode.

If the target falls out of sync between the look and the write of 5, the write is refused by its version, and the move
is back at 4.
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
    """Moves partitions to the brokers wanted, or cancels where that is None; by partition what is wrong with it.

    :param supersedes_znode: what ``/admin/reassign_partitions`` says of those that can be moved is not wanted any more.
    """
    results: dict[TopicPartition, KafkaError | None] = {}
    moves: dict[TopicPartition, Assignment] = {}
    # Whether replicas may be dropped depends on the ISR as it is.
    yield from read_states(context, [one for one in targets if context.leadership(one) is not None])
    for partition, target in targets.items():
        try:
            moves[partition] = yield from _prepare(context, partition, target, may_change_count=may_change_count)
            results[partition] = None
        except KafkaError as error:
            results[partition] = error
    if supersedes_znode and moves:
        # Before the move is written: of a controller that dies in between the next one is not to bring the wish back.
        yield ClearReassignments(tuple(moves))
    for topic in dict.fromkeys(topic for topic, _ in moves):
        of_topic = {partition: move for partition, move in moves.items() if partition[0] == topic}
        yield WriteTopic(topic, context.topic_assignment(topic, of_topic))
        for partition, move in of_topic.items():
            gone = [Replica(*partition, broker) for broker in dropped(context.assignment(partition), move)]
            context.set_assignment(partition, move)
            yield from remove_replicas(context, gone)
    yield from continue_reassignments(context, moves)
    return results


def continue_reassignments(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """What can be done now for partitions that move, or have just been given their replicas in another order."""
    copying: list[TopicPartition] = []
    complete: list[TopicPartition] = []
    for partition in partitions:
        leadership = context.leadership(partition)
        isr = leadership.isr if leadership else ()
        (complete if phase(context.assignment(partition), isr) is Phase.COMPLETE else copying).append(partition)
    yield from _copy(context, copying)
    ended = yield from _complete(context, complete)
    if any(context.is_to_be_deleted(topic) for topic, _ in ended):
        yield from continue_deletions(context)


def on_isr_change(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Leaders have changed ISRs: everyone is told, and moves whose target is now in sync are completed."""
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
    """The move, if it can be made; no dropped replica leads any more."""
    if not context.has_partition(partition) or context.is_to_be_deleted(partition[0]):
        raise UnknownTopicOrPartition(f"there is no partition {partition[0]}-{partition[1]}")
    leadership = context.leadership(partition)
    if leadership is None:
        raise InvalidReplicaAssignment(f"{partition[0]}-{partition[1]} has never had a leader to copy from")
    current, live = context.assignment(partition), context.live_brokers
    move = check_move(current, target, live, leadership.isr, may_change_count=may_change_count)
    gone = dropped(current, move)
    if leadership.leader in gone:
        staying = [broker for broker in move.replicas if broker in current.replicas]
        results = yield from write_states(context, [partition], lambda _: _lead_among(context, partition, staying))
        if partition in results.refused:
            raise InvalidReplicaAssignment(f"the leader would be dropped: {results.refused[partition].value}")
        batch = RequestBatch(context)
        batch.add_leader_and_isr(current.replicas, partition)
        context.move_partition(partition, ControllerPartitionState.ONLINE)
        yield from send(batch)
    return move


def _copy(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Steps[None]:
    """The leader hears of the replicas that are coming, and they of it."""

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
        # A new replica may be made on any disk; one that was there and is missing must not be made anew elsewhere.
        batch.add_leader_and_isr(assignment.adding, partition, is_new=True)
    for partition in partitions:
        for broker in context.assignment(partition).adding:
            replica = Replica(*partition, broker)
            if context.replica_state(replica) is ControllerReplicaState.NON_EXISTENT:
                context.move_replica(replica, ControllerReplicaState.NEW)
    yield from send(batch)


def _complete(context: ControllerContext, partitions: Sequence[TopicPartition]) -> Steps[list[TopicPartition]]:
    """Those that have arrived."""
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
        context.set_assignment(partition, assignment.settled())
        context.move_partition(partition, ControllerPartitionState.ONLINE)
        batch.add_leader_and_isr(assignment.target, partition)
    yield from send(batch)
    yield from remove_replicas(context, removed)
    for topic in sorted(moved):
        yield WriteTopic(topic, context.topic_assignment(topic))
    # One that was cancelled is back even if nobody can lead it now.
    arrived = [partition for partition in partitions if not context.assignment(partition).is_moving]
    if arrived:
        yield ClearReassignments(tuple(arrived))
        batch.add_update_metadata(arrived)
        yield from send(batch)
    return arrived


def _lead_in_target(context: ControllerContext, partition: TopicPartition) -> ElectionOutcome:
    """The leader stays if it may, in a new epoch; nothing if the target is not in sync after all."""
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
