"""Changes the states of partitions and replicas: which znodes are written, and which requests the brokers get.

Every function is a generator of effects, as ``effects.py`` explains. The context changes only after ZooKeeper has
changed.

A write of a ``state`` znode first uses the version that the context has, which saves a read. If a leader has changed
its ISR in the meantime, ZooKeeper rejects the write. Then the znode is read, and the decision is made again with the
new content. The znode is also read before a decision says that something is not possible.
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
    """Reads ``state`` znodes into the context; returns the partitions that have no such znode.

    :raises StaleControllerEpoch: if a later controller wrote one of the znodes.
    """
    answer = yield ReadStates(tuple(partitions))
    missing = set()
    for partition, found in cast("dict[TopicPartition, Leadership | None]", answer).items():
        if found is None:
            missing.add(partition)
            continue
        if found.controller_epoch > context.controller_epoch:
            theirs, ours = found.controller_epoch, context.controller_epoch
            raise StaleControllerEpoch(
                f"the state of {partition} was written in controller epoch {theirs}; this controller's epoch is {ours}"
            )
        context.set_leadership(partition, found)
    return missing


def write_states(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    decide: Callable[[TopicPartition], ElectionOutcome],
    *,
    up_to_date: Iterable[TopicPartition] = (),
) -> Steps[ElectionResults]:
    """Writes the state that ``decide`` returns for each partition.

    Calls ``decide`` again after a read where the znode was not as expected. Calls ``decide`` again once, after a read,
    where ``decide`` returned a refusal: a leader may have changed the ISR without a notification so far.

    :param up_to_date: partitions that were just written or read, and so are not read again after a refusal.
    """
    results = ElectionResults({}, {})
    read = set(up_to_date)
    remaining = list(partitions)
    while remaining:
        decided: dict[TopicPartition, Elected] = {}
        to_read = []
        for partition in remaining:
            outcome = decide(partition)
            if isinstance(outcome, Elected):
                decided[partition] = outcome
            elif outcome is Refusal.NOT_NEEDED or partition in read or not _may_have_changed(context, partition):
                results.refused[partition] = outcome
            else:
                to_read.append(partition)
        conflicts = yield from _write_decided(context, decided, results)
        remaining = [*conflicts, *to_read]
        if remaining:
            missing = yield from read_states(context, remaining)
            results.refused.update(dict.fromkeys(missing, Refusal.STATE_GONE))
            remaining = [partition for partition in remaining if partition not in missing]
            read.update(to_read)
    return results


def _may_have_changed(context: ControllerContext, partition: TopicPartition) -> bool:
    """Whether the leader may have changed the state. Apart from the controller, only leaders change states."""
    leadership = context.leadership(partition)
    return leadership is not None and leadership.leader != NO_LEADER


def _write_decided(
    context: ControllerContext, decided: dict[TopicPartition, Elected], results: ElectionResults
) -> Steps[list[TopicPartition]]:
    """Writes all states with one effect; returns the partitions whose znode was not as expected."""
    if not decided:
        return []
    answer = yield WriteStates(
        tuple(
            StateWrite(partition, elected.leadership, context.leadership(partition) is None)
            for partition, elected in decided.items()
        )
    )
    conflicts = []
    for partition, version in cast("dict[TopicPartition, int | None]", answer).items():
        if version is None:
            conflicts.append(partition)
        else:
            results.elected[partition] = decided[partition]
            context.set_leadership(partition, decided[partition].leadership._replace(version=version))
    return conflicts


def choose_leader(context: ControllerContext, partition: TopicPartition, strategy: ElectionStrategy) -> ElectionOutcome:
    replicas, epoch = context.assignment(partition).replicas, context.controller_epoch
    current, online = context.leadership(partition), context.online_replicas(partition)
    if current is None:
        return elect_first_leader(replicas, online, epoch)
    if strategy is ElectionStrategy.PREFERRED:
        return elect_preferred(current, replicas, online, epoch)
    if strategy is ElectionStrategy.CONTROLLED_SHUTDOWN:
        alive = context.online_replicas(partition, include_shutting_down=True)
        return elect_for_shutdown(current, replicas, alive, context.shutting_down_brokers, epoch)
    unclean = strategy is ElectionStrategy.UNCLEAN or context.allows_unclean(partition[0])
    return elect_offline(current, replicas, online, epoch, unclean=unclean)


def elect(
    context: ControllerContext, partitions: Iterable[TopicPartition], strategy: ElectionStrategy
) -> Steps[ElectionResults]:
    """Moves partitions to ONLINE with a new leader. Partitions that no replica can lead keep their state."""
    candidates = list(partitions)
    was_new = {}
    for partition in candidates:
        state = context.partition_state(partition)
        check_partition_transition(partition, state, ControllerPartitionState.ONLINE)
        was_new[partition] = state is ControllerPartitionState.NEW
    results = yield from write_states(
        context, candidates, lambda partition: choose_leader(context, partition, strategy)
    )
    batch = RequestBatch(context)
    for partition, elected in results.elected.items():
        context.move_partition(partition, ControllerPartitionState.ONLINE)
        context.unclean_elections += elected.is_unclean
        batch.add_leader_and_isr(elected.recipients, partition, is_new=was_new[partition])
    yield from send(batch)
    return results


def move_partitions_offline(context: ControllerContext, partitions: Iterable[TopicPartition]) -> None:
    """Moves partitions to OFFLINE. Sends nothing: the election that follows sends its result."""
    for partition in partitions:
        context.move_partition(partition, ControllerPartitionState.OFFLINE)


def move_replicas_online(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Moves replicas to ONLINE and sends their brokers the leader. New replicas have received the leader before."""
    batch = RequestBatch(context)
    for replica in _checked(context, replicas, ControllerReplicaState.ONLINE):
        if context.replica_state(replica) is not ControllerReplicaState.NEW:
            batch.add_leader_and_isr([replica.broker], replica.topic_partition)
        context.move_replica(replica, ControllerReplicaState.ONLINE)
    yield from send(batch)


def move_replicas_offline(
    context: ControllerContext, replicas: Sequence[Replica], *, up_to_date: Iterable[TopicPartition] = ()
) -> Steps[None]:
    """Moves replicas to OFFLINE: stops them where their broker is alive, removes them from the ISR, and sends the new
    ISR to the other replicas.

    :param up_to_date: partitions whose state was just written.
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

    results = yield from write_states(context, gone, leave_isr, up_to_date=up_to_date)
    for partition, changed in results.elected.items():
        batch.add_leader_and_isr(changed.recipients, partition)
        if changed.leadership.leader == NO_LEADER:
            context.move_partition(partition, ControllerPartitionState.OFFLINE)
    if results.refused:
        # The ISR of these partitions stays the same, but the brokers must learn that a replica is offline.
        batch.add_update_metadata(results.refused)
    for replica in replicas:
        context.move_replica(replica, ControllerReplicaState.OFFLINE)
    yield from send(batch)


def remove_replicas(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Stops and deletes replicas without waiting for responses. A broker that is down deletes them when it starts."""
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
