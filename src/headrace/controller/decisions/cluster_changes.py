"""Decides what follows from a change in the cluster: a broker starts, stops, shuts down or loses a disk; a topic gets
partitions; a client asks for leaders. Reassignments are in ``reassignment_steps.py``, deletions in
``topic_deletions.py``.

Every function is a generator of effects, as ``effects.py`` explains. :func:`update_brokers` and :func:`update_topics`
take what ZooKeeper contains and find the differences to the context. The other functions expect that the context
already contains the change.
"""

from collections.abc import Collection, Iterable, Mapping

from headrace.controller.decisions.broker_requests import RequestBatch
from headrace.controller.decisions.context import ControllerContext, LiveBroker, Replica
from headrace.controller.decisions.effects import Steps
from headrace.controller.decisions.leader_elections import NO_LEADER, ElectionStrategy, Refusal, imbalanced_partitions
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.reassignment_steps import continue_reassignments, on_isr_change, reassign
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.controller.decisions.state_changes import (
    ElectionResults,
    elect,
    move_partitions_offline,
    move_replicas_offline,
    move_replicas_online,
    send,
)
from headrace.controller.decisions.topic_deletions import (
    DeletionState,
    continue_deletions,
    delete_topics,
    deletion_state,
    fail_replica_deletions,
    on_stop_replica_response,
    retry_replica_deletions,
)
from headrace.coordination.znodes import TopicAssignment, TopicPartition
from headrace.protocol.errors import (
    BrokerNotAvailable,
    InvalidTopic,
    KafkaError,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)

#: One function per change; the functions that are not defined below are imported.
__all__ = [
    "delete_topics",
    "elect_leaders",
    "on_broker_failure",
    "on_broker_startup",
    "on_broker_update",
    "on_controlled_shutdown",
    "on_controller_failover",
    "on_isr_change",
    "on_leader_and_isr_response",
    "on_log_dir_failure",
    "on_new_partition_creation",
    "on_replicas_become_offline",
    "on_stop_replica_response",
    "on_unclean_election_enabled",
    "reassign",
    "rebalance_leaders",
    "update_brokers",
    "update_topics",
]

#: As a broker epoch: the request does not contain one (KIP-380).
ANY_BROKER_EPOCH = -1


def on_controller_failover(
    context: ControllerContext, led_by_restarted: Collection[TopicPartition] = ()
) -> Steps[None]:
    """Sends the state of the cluster to all brokers, and continues what an earlier controller started.

    :param led_by_restarted: partitions whose leader is alive, but may have lost records in a restart. They need a new
        leader epoch: in the old epoch, new records would have the same offsets and epoch as the lost records.
    """
    context.initialise_states()
    # Brokers need the addresses of the others before they can follow leaders. A broker that has just started serves
    # clients as soon as it knows the others, so it must learn of all topics with them.
    batch = RequestBatch(context)
    batch.add_update_metadata(context.leaderships)
    yield from send(batch)
    yield from elect(context, led_by_restarted, ElectionStrategy.OFFLINE)
    replicas = context.replicas_of(context.partitions())
    yield from move_replicas_online(
        context, [one for one in replicas if context.replica_state(one) is ControllerReplicaState.ONLINE]
    )
    yield from elect_missing_leaders(context)
    # Brokers that failed while there was no controller may still be in an ISR.
    offline = [replica for replica in replicas if context.replica_state(replica) is ControllerReplicaState.OFFLINE]
    yield from move_replicas_offline(context, offline, up_to_date=context.leaderships)
    yield from continue_reassignments(context, context.moving_partitions)
    yield from continue_deletions(context)


def update_brokers(context: ControllerContext, registered: Iterable[LiveBroker]) -> Steps[None]:
    """Updates the context to the registered brokers, and does what follows from the differences.

    A broker with another epoch than before has restarted so quickly that its failure was not noticed. Such a broker is
    treated as failed first, and then as started.
    """
    now = {broker.broker_id: broker for broker in registered}
    known = {broker.broker_id: broker for broker in context.brokers}
    failed = [one for one, before in known.items() if one not in now or now[one].epoch != before.epoch]
    started = [one for one in now if one not in known or one in failed]
    changed = [one for one in now if one in known and one not in failed and now[one] != known[one]]
    for broker_id in failed:
        context.remove_broker(broker_id)
    if failed:
        yield from on_broker_failure(context, failed)
    for broker_id in (*started, *changed):
        context.add_broker(now[broker_id])
    if started:
        yield from on_broker_startup(context, started)
    elif changed:
        yield from on_broker_update(context)


def on_broker_startup(context: ControllerContext, brokers: Collection[int]) -> Steps[None]:
    batch = RequestBatch(context)
    batch.add_update_metadata([], [broker for broker in context.broker_ids if broker not in brokers])
    yield from send(batch)
    # Sent early, so that a broker that restarted after a controlled shutdown can answer Metadata requests at once.
    batch.add_update_metadata(context.leaderships, brokers)
    yield from send(batch)
    replicas = context.replicas_on(brokers)
    retry_replica_deletions(context, (replica for replica in replicas if context.has_deletion_started(replica.topic)))
    yield from move_replicas_online(context, [one for one in replicas if not context.has_deletion_started(one.topic)])
    yield from elect_missing_leaders(context)
    started = set(brokers)
    yield from continue_reassignments(
        context,
        [
            partition
            for partition in context.moving_partitions
            if not started.isdisjoint(context.assignment(partition).target)
        ],
    )
    yield from continue_deletions(context)


def on_broker_update(context: ControllerContext) -> Steps[None]:
    """Sends the new addresses of brokers to all brokers."""
    batch = RequestBatch(context)
    batch.add_update_metadata([])
    yield from send(batch)


def on_broker_failure(context: ControllerContext, brokers: Iterable[int]) -> Steps[None]:
    yield from on_replicas_become_offline(context, context.replicas_on(brokers))


def on_replicas_become_offline(context: ControllerContext, replicas: Collection[Replica]) -> Steps[None]:
    """Elects new leaders and shrinks the ISRs, because the brokers or disks of replicas failed."""
    in_deletion = [replica for replica in replicas if context.has_deletion_started(replica.topic)]
    served = [replica for replica in replicas if not context.has_deletion_started(replica.topic)]
    leaderless = [
        partition
        for partition in dict.fromkeys(replica.topic_partition for replica in served)
        if context.partition_state(partition) is ControllerPartitionState.ONLINE
        and not context.has_leader_online(partition)
    ]
    move_partitions_offline(context, leaderless)
    results = yield from elect_missing_leaders(context)
    yield from move_replicas_offline(context, served, up_to_date=results.elected)
    fail_replica_deletions(context, in_deletion)
    if not served:
        yield from on_broker_update(context)
    yield from _complete_reassignments(context, results)
    yield from continue_deletions(context)


def on_log_dir_failure(context: ControllerContext, broker: int) -> Steps[None]:
    """Sends LeaderAndIsr to a broker with a failed disk. The response says which replicas were on that disk."""
    yield from move_replicas_online(
        context,
        [
            replica
            for replica in context.replicas_on([broker])
            if context.replica_state(replica) is ControllerReplicaState.ONLINE
            and not context.has_deletion_started(replica.topic)
        ],
    )


def on_leader_and_isr_response(
    context: ControllerContext, broker: int, failed: Iterable[TopicPartition], working: Iterable[TopicPartition]
) -> Steps[None]:
    """Processes a broker's response to LeaderAndIsr: which replicas are on failed disks, and which on working disks."""
    for partition in working:
        context.mark_replica_working(broker, partition)
    newly_failed = [
        partition
        for partition in failed
        if context.has_partition(partition) and partition not in context.failed_replicas(broker)
    ]
    for partition in newly_failed:
        context.mark_replica_failed(broker, partition)
    if newly_failed:
        yield from on_replicas_become_offline(
            context,
            [Replica(*one, broker) for one in newly_failed if broker in context.assignment(one).replicas],
        )


def update_topics(
    context: ControllerContext, found: Mapping[str, TopicAssignment], removed: Iterable[str] = ()
) -> Steps[ElectionResults]:
    """Adds new topics and new partitions to the context and elects their leaders.

    :param found: the assignments of topics in ZooKeeper.
    :param removed: topics that somebody else has deleted from ZooKeeper.
    """
    for topic in removed:
        context.remove_topic(topic)
    created = [partition for topic, assigned in found.items() for partition in context.add_topic(topic, assigned)]
    return (yield from on_new_partition_creation(context, created))


def on_new_partition_creation(
    context: ControllerContext, partitions: Collection[TopicPartition]
) -> Steps[ElectionResults]:
    """Elects the first leader of partitions that are new in the context."""
    replicas = context.replicas_of(partitions)
    for partition in partitions:
        context.move_partition(partition, ControllerPartitionState.NEW)
    for replica in replicas:
        context.move_replica(replica, ControllerReplicaState.NEW)
    results = yield from elect(context, partitions, ElectionStrategy.OFFLINE)
    online = {one for one in replicas if context.is_online(one.broker, one.topic_partition)}
    yield from move_replicas_online(context, [replica for replica in replicas if replica in online])
    yield from move_replicas_offline(context, [replica for replica in replicas if replica not in online])
    return results


def on_controlled_shutdown(
    context: ControllerContext, broker: int, broker_epoch: int = ANY_BROKER_EPOCH
) -> Steps[list[TopicPartition]]:
    """Elects other leaders for the partitions of a broker that shuts down; returns the partitions that it still leads.

    The result leaves out partitions that have no other replica, because waiting would not help them.

    :raises BrokerNotAvailable: if the broker is not alive.
    :raises StaleBrokerEpoch: if the request is from an earlier registration of the broker.
    """
    known = context.broker(broker)
    if known is None:
        raise BrokerNotAvailable(f"broker {broker} is not alive")
    if broker_epoch != ANY_BROKER_EPOCH and broker_epoch < known.epoch:
        raise StaleBrokerEpoch(
            f"the epoch of broker {broker} is {known.epoch}; the request has the old epoch {broker_epoch}"
        )
    context.start_broker_shutdown(broker)
    shared = [
        partition
        for partition in sorted(context.partitions_of_broker(broker))
        if len(context.assignment(partition).replicas) > 1
        and context.leadership(partition) is not None
        and not context.has_deletion_started(partition[0])
    ]
    led = context.partitions_led_by(broker)
    results = yield from elect(context, [one for one in shared if one in led], ElectionStrategy.CONTROLLED_SHUTDOWN)
    # The broker must not follow the partitions that it no longer leads. Otherwise it would join the ISR again shortly
    # before it stops.
    still_led = context.partitions_led_by(broker)
    yield from move_replicas_offline(
        context, [Replica(*one, broker) for one in shared if one not in still_led], up_to_date=results.elected
    )
    return [partition for partition in shared if partition in still_led]


def elect_missing_leaders(context: ControllerContext) -> Steps[ElectionResults]:
    """Elects leaders for all partitions without a leader, where that is possible."""
    leaderless = context.partitions_in(ControllerPartitionState.NEW, ControllerPartitionState.OFFLINE)
    deleting = {
        topic for topic in context.topics_to_delete if deletion_state(context, topic) is not DeletionState.BLOCKED
    }
    return (yield from elect(context, [one for one in leaderless if one[0] not in deleting], ElectionStrategy.OFFLINE))


def on_unclean_election_enabled(context: ControllerContext, topic: str | None = None) -> Steps[ElectionResults]:
    """Elects leaders after ``unclean.leader.election.enable`` became true for a topic, or for all topics (None)."""
    offline = context.partitions_in(ControllerPartitionState.OFFLINE)
    candidates = [one for one in offline if topic in (None, one[0]) and not context.is_to_be_deleted(one[0])]
    results = yield from elect(context, candidates, ElectionStrategy.OFFLINE)
    yield from _complete_reassignments(context, results)
    return results


def elect_leaders(
    context: ControllerContext, partitions: Iterable[TopicPartition], strategy: ElectionStrategy
) -> Steps[dict[TopicPartition, KafkaError | None]]:
    """Elects leaders for a client, by ``PREFERRED`` or ``UNCLEAN``; returns the error of each partition, or None."""
    answers: dict[TopicPartition, KafkaError | None] = {}
    candidates = []
    for partition in partitions:
        name = f"{partition[0]}-{partition[1]}"
        if not context.has_partition(partition):
            answers[partition] = UnknownTopicOrPartition(f"partition {name} does not exist")
        elif context.is_to_be_deleted(partition[0]):
            answers[partition] = InvalidTopic(f"topic {partition[0]} is being deleted")
        elif strategy is ElectionStrategy.UNCLEAN and context.has_leader_online(partition):
            answers[partition] = Refusal.NOT_NEEDED.error(name)
        else:
            candidates.append(partition)
    results = yield from elect(context, candidates, strategy)
    yield from _complete_reassignments(context, results)
    answers.update(dict.fromkeys(results.elected))
    answers.update({one: refusal.error(f"{one[0]}-{one[1]}") for one, refusal in results.refused.items()})
    return answers


def rebalance_leaders(context: ControllerContext, allowed_percentage: int) -> Steps[ElectionResults]:
    """Elects the preferred leaders of brokers that lead too few partitions (``auto.leader.rebalance.enable``)."""
    led = [
        (partition, context.assignment(partition).replicas[0], leadership.leader)
        for partition, leadership in context.leaderships.items()
        if leadership.leader != NO_LEADER and not context.is_to_be_deleted(partition[0])
    ]
    return (yield from elect(context, imbalanced_partitions(led, allowed_percentage), ElectionStrategy.PREFERRED))


def _complete_reassignments(context: ControllerContext, results: ElectionResults) -> Steps[None]:
    """Continues reassignments after an unclean election: the new ISR may contain the whole target now."""
    unclean = [one for one, elected in results.elected.items() if elected.leadership.is_recovering]
    yield from continue_reassignments(context, [one for one in unclean if context.assignment(one).is_moving])
