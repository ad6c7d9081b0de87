"""What a change of state means: which znodes are written, and what the brokers are told.

Everything here is a generator of :data:`Steps`. It yields an effect, what is to be done in the world, and gets the
answer back; what it returns is the result. It does nothing itself, so the same code runs on a real ZooKeeper, in the
simulator, and in a test that answers from a dict:

=====================  ===============================================================================================
:class:`WriteStates`   write ``state`` znodes, each only at the version that is named; new ones are made, with their
                       parents. Answer: by partition the new version, or None where the znode was not as expected
:class:`ReadStates`    read them again. Answer: by partition its :class:`Leadership`, or None where there is none
:class:`WriteTopic`    write a topic's assignment to its znode. No answer, like all that follow
:class:`DeleteTopic`   remove a topic's znodes, its config, and the wish to delete it
:class:`ClearReassignments`      take partitions out of ``/admin/reassign_partitions``, if they are in it
:class:`Send`          give requests to the brokers, in order; what they answer comes back later, as an event
=====================  ===============================================================================================

Who performs the effects makes every write depend on the version of ``/controller_epoch`` too, and closes the generator
when that has changed: then another broker is controller, and whatever was going on here is no longer ours to do.

The context's version of a ``state`` is tried first, which saves reading it. Where a leader has changed its ISR in the
meantime the write is refused; then the znode is read, and everything decided anew on what it says. The same before it
is said that something cannot be done. The context changes only after the tree.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from headrace.controller.decisions.broker_requests import RequestBatch
from headrace.controller.decisions.context import ControllerContext, Replica
from headrace.controller.decisions.effects import ReadStates, Send, StateWrite, Steps, WriteStates
from headrace.controller.decisions.leader_elections import (
    NO_LEADER,
    Elected,
    ElectionOutcome,
    ElectionStrategy,
    Leadership,
    Refusal,
    elect_first_leader,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
)
from headrace.controller.decisions.partition_states import ControllerPartitionState, check_partition_transition
from headrace.controller.decisions.replica_states import ControllerReplicaState, check_replica_transition
from headrace.coordination.znodes import TopicPartition
from headrace.protocol.errors import StaleControllerEpoch


class ElectionResults(NamedTuple):
    elected: dict[TopicPartition, Elected]
    refused: dict[TopicPartition, Refusal]


def send(batch: RequestBatch) -> Steps[None]:
    requests = batch.requests()
    if requests:
        yield Send(requests)


def read_states(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Steps[set[TopicPartition]]:
    """Takes over what the tree says now; those partitions that have no state there.

    :raises StaleControllerEpoch: if a later controller wrote one of them.
    """
    answer = yield ReadStates(tuple(partitions))
    missing = set()
    for partition, found in cast("dict[TopicPartition, Leadership | None]", answer).items():
        if found is None:
            missing.add(partition)
            continue
        if found.controller_epoch > context.controller_epoch:
            theirs, ours = found.controller_epoch, context.controller_epoch
            raise StaleControllerEpoch(f"{partition} was written in controller epoch {theirs}, ours is {ours}")
        context.set_leadership(partition, found)
    return missing


def write_states(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    decide: Callable[[TopicPartition], ElectionOutcome],
    *,
    fresh: Iterable[TopicPartition] = (),
) -> Steps[ElectionResults]:
    """Writes what ``decide`` says of each partition, and asks it again where the znode turns out to be another.

    What it refuses it is asked again too, once, after reading: a leader may have changed its ISR and not told yet. But
    not of partitions that are ``fresh``, which were just written or read.
    """
    results = ElectionResults({}, {})
    read = set(fresh)
    remaining = list(partitions)
    while remaining:
        wanted: dict[TopicPartition, Elected] = {}
        doubtful = []
        for partition in remaining:
            outcome = decide(partition)
            if isinstance(outcome, Elected):
                wanted[partition] = outcome
            elif outcome is Refusal.NOT_NEEDED or partition in read or not _may_have_changed(context, partition):
                results.refused[partition] = outcome
            else:
                doubtful.append(partition)
        conflicts = yield from _write_wanted(context, wanted, results)
        remaining = [*conflicts, *doubtful]
        if remaining:
            missing = yield from read_states(context, remaining)
            results.refused.update(dict.fromkeys(missing, Refusal.STATE_GONE))
            remaining = [partition for partition in remaining if partition not in missing]
            read.update(doubtful)
    return results


def _may_have_changed(context: ControllerContext, partition: TopicPartition) -> bool:
    """By someone else than us: only a leader changes its partition's state."""
    leadership = context.leadership(partition)
    return leadership is not None and leadership.leader != NO_LEADER


def _write_wanted(
    context: ControllerContext, wanted: dict[TopicPartition, Elected], results: ElectionResults
) -> Steps[list[TopicPartition]]:
    """One write of many; those partitions that were not as expected."""
    if not wanted:
        return []
    answer = yield WriteStates(
        tuple(
            StateWrite(partition, elected.leadership, context.leadership(partition) is None)
            for partition, elected in wanted.items()
        )
    )
    conflicts = []
    for partition, version in cast("dict[TopicPartition, int | None]", answer).items():
        if version is None:
            conflicts.append(partition)
        else:
            results.elected[partition] = wanted[partition]
            context.set_leadership(partition, wanted[partition].leadership._replace(version=version))
    return conflicts


def choose_leader(context: ControllerContext, partition: TopicPartition, how: ElectionStrategy) -> ElectionOutcome:
    replicas, epoch = context.assignment(partition).replicas, context.controller_epoch
    current, online = context.leadership(partition), context.online_replicas(partition)
    if current is None:
        return elect_first_leader(replicas, online, epoch)
    if how is ElectionStrategy.PREFERRED:
        return elect_preferred(current, replicas, online, epoch)
    if how is ElectionStrategy.REASSIGNED:
        return elect_reassigned(current, replicas, online, epoch)
    if how is ElectionStrategy.SHUTDOWN:
        told = context.online_replicas(partition, include_shutting_down=True)
        return elect_for_shutdown(current, replicas, told, context.shutting_down_brokers, epoch)
    unclean = how is ElectionStrategy.UNCLEAN or context.allows_unclean(partition[0])
    return elect_offline(current, replicas, online, epoch, unclean=unclean)


def elect(
    context: ControllerContext, partitions: Iterable[TopicPartition], how: ElectionStrategy
) -> Steps[ElectionResults]:
    """Partitions go ONLINE with a new leader, or stay what they are where nobody can lead."""
    wanted = list(partitions)
    was_new = {}
    for partition in wanted:
        state = context.partition_state(partition)
        check_partition_transition(partition, state, ControllerPartitionState.ONLINE)
        was_new[partition] = state is ControllerPartitionState.NEW
    results = yield from write_states(context, wanted, lambda partition: choose_leader(context, partition, how))
    batch = RequestBatch(context)
    for partition, elected in results.elected.items():
        context.move_partition(partition, ControllerPartitionState.ONLINE)
        context.unclean_elections += elected.is_unclean
        batch.add_leader_and_isr(elected.recipients, partition, is_new=was_new[partition])
    yield from send(batch)
    return results


def move_partitions_offline(context: ControllerContext, partitions: Iterable[TopicPartition]) -> None:
    """Nobody is told: that they have no leader shows when an election has failed, or succeeded."""
    for partition in partitions:
        context.move_partition(partition, ControllerPartitionState.OFFLINE)


def move_replicas_online(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Their brokers are told who leads; new ones know that already."""
    batch = RequestBatch(context)
    for replica in _checked(context, replicas, ControllerReplicaState.ONLINE):
        if context.replica_state(replica) is not ControllerReplicaState.NEW:
            batch.add_leader_and_isr([replica.broker], replica.topic_partition)
        context.move_replica(replica, ControllerReplicaState.ONLINE)
    yield from send(batch)


def move_replicas_offline(
    context: ControllerContext, replicas: Sequence[Replica], *, fresh: Iterable[TopicPartition] = ()
) -> Steps[None]:
    """They are stopped, where their broker still lives, and leave the ISR, of which the other replicas are told.

    ``fresh`` are partitions whose state was just written.
    """
    batch = RequestBatch(context)
    gone: dict[TopicPartition, set[int]] = {}
    for replica in _checked(context, replicas, ControllerReplicaState.OFFLINE):
        batch.add_stop_replica(replica.broker, replica.topic_partition)
        gone.setdefault(replica.topic_partition, set()).add(replica.broker)

    def leave_isr(partition: TopicPartition) -> ElectionOutcome:
        current = context.leadership(partition)
        after = None if current is None else current.without(gone[partition], context.controller_epoch)
        if after is None:
            return Refusal.NOT_IN_SYNC
        others = context.assignment(partition).replicas
        return Elected(after, tuple(replica for replica in others if replica not in gone[partition]))

    results = yield from write_states(context, gone, leave_isr, fresh=fresh)
    for partition, changed in results.elected.items():
        batch.add_leader_and_isr(changed.recipients, partition)
        if changed.leadership.leader == NO_LEADER:
            context.move_partition(partition, ControllerPartitionState.OFFLINE)
    if results.refused:
        # Their ISR stays, but that a replica is offline is news all the same.
        batch.add_update_metadata(results.refused)
    for replica in replicas:
        context.move_replica(replica, ControllerReplicaState.OFFLINE)
    yield from send(batch)


def remove_replicas(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Stopped and deleted, without waiting for an answer: a broker that is dead now finds out when it comes back."""
    yield from move_replicas_offline(context, replicas)
    batch = RequestBatch(context)
    for replica in replicas:
        context.move_replica(replica, ControllerReplicaState.DELETION_STARTED)
        batch.add_stop_replica(replica.broker, replica.topic_partition, delete=True)
        context.move_replica(replica, ControllerReplicaState.DELETION_SUCCESSFUL)
        context.move_replica(replica, ControllerReplicaState.NON_EXISTENT)
    yield from send(batch)


def _checked(
    context: ControllerContext, replicas: Sequence[Replica], state: ControllerReplicaState
) -> Sequence[Replica]:
    for replica in replicas:
        check_replica_transition(replica, context.replica_state(replica), state)
    return replicas
