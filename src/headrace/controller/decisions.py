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
:class:`EndMoves`      take partitions out of ``/admin/reassign_partitions``, if they are in it
:class:`Send`          give requests to the brokers, in order; what they answer comes back later, as an event
=====================  ===============================================================================================

Who performs the effects makes every write depend on the version of ``/controller_epoch`` too, and closes the generator
when that has changed: then another broker is controller, and whatever was going on here is no longer ours to do.

The context's version of a ``state`` is tried first, which saves reading it. Where a leader has changed its ISR in the
meantime the write is refused; then the znode is read, and everything decided anew on what it says. The same before it
is said that something cannot be done. The context changes only after the tree.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias, TypeVar, cast

from headrace.controller.context import Context, Replica
from headrace.controller.elections import (
    NO_LEADER,
    Elected,
    Leadership,
    Outcome,
    Refusal,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    first_leader,
)
from headrace.controller.partition_states import PartitionLife, check_partition_step
from headrace.controller.replica_states import ReplicaLife, check_replica_step
from headrace.controller.requests import Request, RequestBatch
from headrace.coordination.znodes import TopicAssignment, TopicPartition
from headrace.protocol.errors import StaleControllerEpoch


class StateWrite(NamedTuple):
    partition: TopicPartition
    #: With the version that the znode must still have.
    leadership: Leadership
    #: The znode must not exist.
    is_new: bool


class WriteStates(NamedTuple):
    writes: tuple[StateWrite, ...]


class ReadStates(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class WriteTopic(NamedTuple):
    topic: str
    assignment: TopicAssignment


class DeleteTopic(NamedTuple):
    topic: str


class EndMoves(NamedTuple):
    partitions: tuple[TopicPartition, ...]


class Send(NamedTuple):
    requests: tuple[Request, ...]


Effect: TypeAlias = WriteStates | ReadStates | WriteTopic | DeleteTopic | EndMoves | Send
T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, object, T]


class Election(Enum):
    OFFLINE = "offline"
    #: A client asks for a leader at any price.
    UNCLEAN = "unclean"
    PREFERRED = "preferred"
    REASSIGNED = "reassigned"
    SHUTDOWN = "controlled shutdown"


class Elections(NamedTuple):
    elected: dict[TopicPartition, Elected]
    refused: dict[TopicPartition, Refusal]


def send(batch: RequestBatch) -> Steps[None]:
    requests = batch.requests()
    if requests:
        yield Send(requests)


def read_states(context: Context, partitions: Iterable[TopicPartition]) -> Steps[set[TopicPartition]]:
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
    context: Context,
    partitions: Iterable[TopicPartition],
    decide: Callable[[TopicPartition], Outcome],
    *,
    fresh: Iterable[TopicPartition] = (),
) -> Steps[Elections]:
    """Writes what ``decide`` says of each partition, and asks it again where the znode turns out to be another.

    What it refuses it is asked again too, once, after reading: a leader may have changed its ISR and not told yet. But
    not of partitions that are ``fresh``, which were just written or read.
    """
    results = Elections({}, {})
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


def _may_have_changed(context: Context, partition: TopicPartition) -> bool:
    """By someone else than us: only a leader changes its partition's state."""
    leadership = context.leadership(partition)
    return leadership is not None and leadership.leader != NO_LEADER


def _write_wanted(
    context: Context, wanted: dict[TopicPartition, Elected], results: Elections
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


def choose_leader(context: Context, partition: TopicPartition, how: Election) -> Outcome:
    replicas, epoch = context.assignment(partition).replicas, context.controller_epoch
    current, online = context.leadership(partition), context.online(partition)
    if current is None:
        return first_leader(replicas, online, epoch)
    if how is Election.PREFERRED:
        return elect_preferred(current, replicas, online, epoch)
    if how is Election.REASSIGNED:
        return elect_reassigned(current, replicas, online, epoch)
    if how is Election.SHUTDOWN:
        told = context.online(partition, with_stopping=True)
        return elect_for_shutdown(current, replicas, told, context.stopping_brokers, epoch)
    unclean = how is Election.UNCLEAN or context.allows_unclean(partition[0])
    return elect_offline(current, replicas, online, epoch, unclean=unclean)


def elect(context: Context, partitions: Iterable[TopicPartition], how: Election) -> Steps[Elections]:
    """Partitions go ONLINE with a new leader, or stay what they are where nobody can lead."""
    wanted = list(partitions)
    was_new = {}
    for partition in wanted:
        state = context.partition_state(partition)
        check_partition_step(partition, state, PartitionLife.ONLINE)
        was_new[partition] = state is PartitionLife.NEW
    results = yield from write_states(context, wanted, lambda partition: choose_leader(context, partition, how))
    batch = RequestBatch(context)
    for partition, elected in results.elected.items():
        context.move_partition(partition, PartitionLife.ONLINE)
        context.unclean_elections += elected.is_unclean
        batch.lead(elected.recipients, partition, is_new=was_new[partition])
    yield from send(batch)
    return results


def partitions_offline(context: Context, partitions: Iterable[TopicPartition]) -> None:
    """Nobody is told: that they have no leader shows when an election has failed, or succeeded."""
    for partition in partitions:
        context.move_partition(partition, PartitionLife.OFFLINE)


def replicas_online(context: Context, replicas: Sequence[Replica]) -> Steps[None]:
    """Their brokers are told who leads; new ones know that already."""
    batch = RequestBatch(context)
    for replica in _checked(context, replicas, ReplicaLife.ONLINE):
        if context.replica_state(replica) is not ReplicaLife.NEW:
            batch.lead([replica.broker], replica.topic_partition)
        context.move_replica(replica, ReplicaLife.ONLINE)
    yield from send(batch)


def replicas_offline(
    context: Context, replicas: Sequence[Replica], *, fresh: Iterable[TopicPartition] = ()
) -> Steps[None]:
    """They are stopped, where their broker still lives, and leave the ISR, of which the other replicas are told.

    ``fresh`` are partitions whose state was just written.
    """
    batch = RequestBatch(context)
    gone: dict[TopicPartition, set[int]] = {}
    for replica in _checked(context, replicas, ReplicaLife.OFFLINE):
        batch.stop(replica.broker, replica.topic_partition)
        gone.setdefault(replica.topic_partition, set()).add(replica.broker)

    def leave_isr(partition: TopicPartition) -> Outcome:
        current = context.leadership(partition)
        after = None if current is None else current.without(gone[partition], context.controller_epoch)
        if after is None:
            return Refusal.NOT_IN_SYNC
        others = context.assignment(partition).replicas
        return Elected(after, tuple(replica for replica in others if replica not in gone[partition]))

    results = yield from write_states(context, gone, leave_isr, fresh=fresh)
    for partition, changed in results.elected.items():
        batch.lead(changed.recipients, partition)
        if changed.leadership.leader == NO_LEADER:
            context.move_partition(partition, PartitionLife.OFFLINE)
    if results.refused:
        # Their ISR stays, but that a replica is offline is news all the same.
        batch.publish(results.refused)
    for replica in replicas:
        context.move_replica(replica, ReplicaLife.OFFLINE)
    yield from send(batch)


def remove_replicas(context: Context, replicas: Sequence[Replica]) -> Steps[None]:
    """Stopped and deleted, without waiting for an answer: a broker that is dead now finds out when it comes back."""
    yield from replicas_offline(context, replicas)
    batch = RequestBatch(context)
    for replica in replicas:
        context.move_replica(replica, ReplicaLife.DELETION_STARTED)
        batch.stop(replica.broker, replica.topic_partition, delete=True)
        context.move_replica(replica, ReplicaLife.DELETION_SUCCESSFUL)
        context.move_replica(replica, ReplicaLife.NON_EXISTENT)
    yield from send(batch)


def _checked(context: Context, replicas: Sequence[Replica], state: ReplicaLife) -> Sequence[Replica]:
    for replica in replicas:
        check_replica_step(replica, context.replica_state(replica), state)
    return replicas
