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

#: All that can happen; what is not below is imported.
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

#: As a broker's epoch: it does not say (KIP-380).
ANY_BROKER_EPOCH = -1


def on_controller_failover(context: ControllerContext, led_anew: Collection[TopicPartition] = ()) -> Steps[None]:
    """The context has been read from the tree: everyone is told what it says, and what was going on goes on.

    :param led_anew: partitions whose leader lives, but may have forgotten records. Nobody is to lead them in the epoch
        that they had: what it wrote then would have the offsets and the epoch of what it has forgotten.
    """
    context.initialise_states()
    # Brokers must know each other before they are told whom to follow.
    batch = RequestBatch(context)
    batch.add_update_metadata([])
    yield from send(batch)
    yield from elect(context, led_anew, ElectionStrategy.OFFLINE)
    replicas = context.replicas_of(context.partitions())
    yield from move_replicas_online(
        context, [one for one in replicas if context.replica_state(one) is ControllerReplicaState.ONLINE]
    )
    yield from elect_missing_leaders(context)
    # Brokers that died while nobody was controller may still be in an ISR.
    dead = [replica for replica in replicas if context.replica_state(replica) is ControllerReplicaState.OFFLINE]
    yield from move_replicas_offline(context, dead, fresh=context.leaderships)
    yield from continue_reassignments(context, context.moving_partitions)
    yield from continue_deletions(context)


def update_brokers(context: ControllerContext, seen: Iterable[LiveBroker]) -> Steps[None]:
    """``/brokers/ids`` or what is in it has changed, and this is how it is now.

    A broker with another epoch than before has been restarted, faster than anyone noticed: it went and it came.
    """
    now = {broker.broker_id: broker for broker in seen}
    known = {broker.broker_id: broker for broker in context.brokers}
    went = [one for one, before in known.items() if one not in now or now[one].epoch != before.epoch]
    came = [one for one in now if one not in known or one in went]
    changed = [one for one in now if one in known and one not in went and now[one] != known[one]]
    for broker_id in went:
        context.remove_broker(broker_id)
    if went:
        yield from on_broker_failure(context, went)
    for broker_id in (*came, *changed):
        context.add_broker(now[broker_id])
    if came:
        yield from on_broker_startup(context, came)
    elif changed:
        yield from on_broker_update(context)


def on_broker_startup(context: ControllerContext, brokers: Collection[int]) -> Steps[None]:
    batch = RequestBatch(context)
    batch.add_update_metadata([], [broker for broker in context.broker_ids if broker not in brokers])
    yield from send(batch)
    # Early, so that a broker that comes back from a controlled shutdown serves metadata at once.
    batch.add_update_metadata(context.leaderships, brokers)
    yield from send(batch)
    replicas = context.replicas_on(brokers)
    retry_replica_deletions(context, (replica for replica in replicas if context.has_deletion_started(replica.topic)))
    yield from move_replicas_online(context, [one for one in replicas if not context.has_deletion_started(one.topic)])
    yield from elect_missing_leaders(context)
    arriving = set(brokers)
    yield from continue_reassignments(
        context,
        [
            partition
            for partition in context.moving_partitions
            if not arriving.isdisjoint(context.assignment(partition).target)
        ],
    )
    yield from continue_deletions(context)


def on_broker_update(context: ControllerContext) -> Steps[None]:
    """They have other addresses."""
    batch = RequestBatch(context)
    batch.add_update_metadata([])
    yield from send(batch)


def on_broker_failure(context: ControllerContext, brokers: Iterable[int]) -> Steps[None]:
    yield from on_replicas_become_offline(context, context.replicas_on(brokers))


def on_replicas_become_offline(context: ControllerContext, replicas: Collection[Replica]) -> Steps[None]:
    """Replicas are no longer online, their broker or their disk being dead: others lead, and they leave the ISR."""
    begun = [replica for replica in replicas if context.has_deletion_started(replica.topic)]
    served = [replica for replica in replicas if not context.has_deletion_started(replica.topic)]
    leaderless = [
        partition
        for partition in dict.fromkeys(replica.topic_partition for replica in served)
        if context.partition_state(partition) is ControllerPartitionState.ONLINE
        and not context.has_leader_online(partition)
    ]
    move_partitions_offline(context, leaderless)
    results = yield from elect_missing_leaders(context)
    yield from move_replicas_offline(context, served, fresh=results.elected)
    fail_replica_deletions(context, begun)
    if not served:
        yield from on_broker_update(context)
    yield from _complete_reassignments(context, results)
    yield from continue_deletions(context)


def on_log_dir_failure(context: ControllerContext, broker: int) -> Steps[None]:
    """A broker has lost a disk. Which replicas were on it, its answer to this will tell."""
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
    context: ControllerContext, broker: int, lost: Iterable[TopicPartition], fine: Iterable[TopicPartition]
) -> Steps[None]:
    """A broker's answer to LeaderAndIsr: which of the replicas are on a disk that does not work."""
    for partition in fine:
        context.mark_replica_working(broker, partition)
    news = [
        partition
        for partition in lost
        if context.has_partition(partition) and partition not in context.failed_replicas(broker)
    ]
    for partition in news:
        context.mark_replica_failed(broker, partition)
    if news:
        yield from on_replicas_become_offline(
            context,
            [Replica(*one, broker) for one in news if broker in context.assignment(one).replicas],
        )


def update_topics(
    context: ControllerContext, seen: Mapping[str, TopicAssignment], gone: Iterable[str] = ()
) -> Steps[ElectionResults]:
    """Topics are new or have grown, as their znodes say; or are gone from the tree without our doing."""
    for topic in gone:
        context.remove_topic(topic)
    made = [partition for topic, assigned in seen.items() for partition in context.add_topic(topic, assigned)]
    return (yield from on_new_partition_creation(context, made))


def on_new_partition_creation(
    context: ControllerContext, partitions: Collection[TopicPartition]
) -> Steps[ElectionResults]:
    """Partitions that the context has, and nobody was told of: each gets a leader."""
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
    """A broker asks to go: its partitions get other leaders. Those that it still leads are returned.

    Partitions that only it has are not counted: nobody could lead them, however long it waited.

    :raises BrokerNotAvailable: if it does not live.
    :raises StaleBrokerEpoch: if one that was before it asked.
    """
    known = context.broker(broker)
    if known is None:
        raise BrokerNotAvailable(f"there is no broker {broker}")
    if broker_epoch != ANY_BROKER_EPOCH and broker_epoch < known.epoch:
        raise StaleBrokerEpoch(f"broker {broker} is in epoch {known.epoch}, and not in {broker_epoch} any more")
    context.start_broker_shutdown(broker)
    shared = [
        partition
        for partition in sorted(context.partitions_of_broker(broker))
        if len(context.assignment(partition).replicas) > 1
        and context.leadership(partition) is not None
        and not context.has_deletion_started(partition[0])
    ]
    led = context.partitions_led_by(broker)
    results = yield from elect(context, [one for one in shared if one in led], ElectionStrategy.SHUTDOWN)
    # What it leads no more it is not to follow either: it would come back into the ISR just before it goes.
    still_led = context.partitions_led_by(broker)
    yield from move_replicas_offline(
        context, [Replica(*one, broker) for one in shared if one not in still_led], fresh=results.elected
    )
    return [partition for partition in shared if partition in still_led]


def elect_missing_leaders(context: ControllerContext) -> Steps[ElectionResults]:
    """Leaders for all partitions that have none, where that is possible."""
    waiting = context.partitions_in(ControllerPartitionState.NEW, ControllerPartitionState.OFFLINE)
    deleting = {
        topic for topic in context.topics_to_delete if deletion_state(context, topic) is not DeletionState.BLOCKED
    }
    return (yield from elect(context, [one for one in waiting if one[0] not in deleting], ElectionStrategy.OFFLINE))


def on_unclean_election_enabled(context: ControllerContext, topic: str | None = None) -> Steps[ElectionResults]:
    """``unclean.leader.election.enable`` has become true, for a topic or by default."""
    offline = context.partitions_in(ControllerPartitionState.OFFLINE)
    wanted = [one for one in offline if topic in (None, one[0]) and not context.is_to_be_deleted(one[0])]
    results = yield from elect(context, wanted, ElectionStrategy.OFFLINE)
    yield from _complete_reassignments(context, results)
    return results


def elect_leaders(
    context: ControllerContext, partitions: Iterable[TopicPartition], how: ElectionStrategy
) -> Steps[dict[TopicPartition, KafkaError | None]]:
    """As a client asks (``PREFERRED`` or ``UNCLEAN``); by partition what is wrong with it."""
    answers: dict[TopicPartition, KafkaError | None] = {}
    wanted = []
    for partition in partitions:
        name = f"{partition[0]}-{partition[1]}"
        if not context.has_partition(partition):
            answers[partition] = UnknownTopicOrPartition(f"there is no partition {name}")
        elif context.is_to_be_deleted(partition[0]):
            answers[partition] = InvalidTopic(f"topic {partition[0]} is being deleted")
        elif how is ElectionStrategy.UNCLEAN and context.has_leader_online(partition):
            answers[partition] = Refusal.NOT_NEEDED.error(name)
        else:
            wanted.append(partition)
    results = yield from elect(context, wanted, how)
    yield from _complete_reassignments(context, results)
    answers.update(dict.fromkeys(results.elected))
    answers.update({one: refusal.error(f"{one[0]}-{one[1]}") for one, refusal in results.refused.items()})
    return answers


def rebalance_leaders(context: ControllerContext, allowed_percentage: int) -> Steps[ElectionResults]:
    """``auto.leader.rebalance.enable``: leaders go back to where they should be, of brokers that lead too few."""
    led = [
        (partition, context.assignment(partition).replicas[0], leadership.leader)
        for partition, leadership in context.leaderships.items()
        if leadership.leader != NO_LEADER and not context.is_to_be_deleted(partition[0])
    ]
    return (yield from elect(context, imbalanced_partitions(led, allowed_percentage), ElectionStrategy.PREFERRED))


def _complete_reassignments(context: ControllerContext, results: ElectionResults) -> Steps[None]:
    """After an unclean election: who was elected may be all that the move's target wants in sync."""
    moving = [one for one, elected in results.elected.items() if elected.leadership.is_recovering]
    yield from continue_reassignments(context, [one for one in moving if context.assignment(one).is_moving])
