"""What the controller does when something happens: brokers come, go, stop or lose a disk; partitions are made; leaders
are asked for. Moves are in ``moves.py``, deletions in ``deletions.py``.

Each is a generator of effects, as ``decisions.py`` explains. ``brokers_seen`` and ``topics_seen`` take what the tree
has and find out what is new; for the others the context is to have been told first what has happened.
"""

from collections.abc import Collection, Iterable, Mapping

from headrace.controller.context import Context, LiveBroker, Replica
from headrace.controller.decisions import (
    Election,
    Elections,
    Steps,
    elect,
    partitions_offline,
    replicas_online,
    send,
)
from headrace.controller.decisions import replicas_offline as move_offline
from headrace.controller.deletions import (
    Standing,
    continue_deletions,
    delete_topics,
    replicas_died,
    replicas_returned,
    standing,
    stop_answered,
)
from headrace.controller.elections import NO_LEADER, Refusal, imbalanced
from headrace.controller.moves import go_on, isr_changed, reassign
from headrace.controller.partition_states import PartitionLife
from headrace.controller.replica_states import ReplicaLife
from headrace.controller.requests import RequestBatch
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
    "become_controller",
    "broker_stops",
    "brokers_came",
    "brokers_changed",
    "brokers_seen",
    "brokers_went",
    "delete_topics",
    "disks_failed",
    "elect_leaders",
    "isr_changed",
    "leaders_answered",
    "partitions_made",
    "reassign",
    "rebalance_leaders",
    "replicas_lost",
    "stop_answered",
    "topics_seen",
    "unclean_allowed",
]

#: As a broker's epoch: it does not say (KIP-380).
ANY_BROKER_EPOCH = -1


def become_controller(context: Context, led_anew: Collection[TopicPartition] = ()) -> Steps[None]:
    """The context has been read from the tree: everyone is told what it says, and what was going on goes on.

    :param led_anew: partitions whose leader lives, but may have forgotten records. Nobody is to lead them in the epoch
        that they had: what it wrote then would have the offsets and the epoch of what it has forgotten.
    """
    context.initialise_states()
    # Brokers must know each other before they are told whom to follow.
    batch = RequestBatch(context)
    batch.publish([])
    yield from send(batch)
    yield from elect(context, led_anew, Election.OFFLINE)
    replicas = context.replicas_of(context.partitions())
    yield from replicas_online(context, [one for one in replicas if context.replica_state(one) is ReplicaLife.ONLINE])
    yield from elect_missing(context)
    # Brokers that died while nobody was controller may still be in an ISR.
    dead = [replica for replica in replicas if context.replica_state(replica) is ReplicaLife.OFFLINE]
    yield from move_offline(context, dead, fresh=context.leaderships)
    yield from go_on(context, context.moving_partitions)
    yield from continue_deletions(context)


def brokers_seen(context: Context, seen: Iterable[LiveBroker]) -> Steps[None]:
    """``/brokers/ids`` or what is in it has changed, and this is how it is now.

    A broker with another epoch than before has been restarted, faster than anyone noticed: it went and it came.
    """
    now = {broker.broker_id: broker for broker in seen}
    known = {broker.broker_id: broker for broker in context.brokers}
    went = [one for one, before in known.items() if one not in now or now[one].epoch != before.epoch]
    came = [one for one in now if one not in known or one in went]
    changed = [one for one in now if one in known and one not in went and now[one] != known[one]]
    for broker_id in went:
        context.broker_went(broker_id)
    if went:
        yield from brokers_went(context, went)
    for broker_id in (*came, *changed):
        context.broker_came(now[broker_id])
    if came:
        yield from brokers_came(context, came)
    elif changed:
        yield from brokers_changed(context)


def brokers_came(context: Context, brokers: Collection[int]) -> Steps[None]:
    batch = RequestBatch(context)
    batch.publish([], [broker for broker in context.broker_ids if broker not in brokers])
    yield from send(batch)
    # Early, so that a broker that comes back from a controlled shutdown serves metadata at once.
    batch.publish(context.leaderships, brokers)
    yield from send(batch)
    replicas = context.replicas_on(brokers)
    replicas_returned(context, (replica for replica in replicas if context.has_begun_deletion(replica.topic)))
    yield from replicas_online(context, [one for one in replicas if not context.has_begun_deletion(one.topic)])
    yield from elect_missing(context)
    arriving = set(brokers)
    yield from go_on(
        context,
        [
            partition
            for partition in context.moving_partitions
            if not arriving.isdisjoint(context.assignment(partition).target)
        ],
    )
    yield from continue_deletions(context)


def brokers_changed(context: Context) -> Steps[None]:
    """They have other addresses."""
    batch = RequestBatch(context)
    batch.publish([])
    yield from send(batch)


def brokers_went(context: Context, brokers: Iterable[int]) -> Steps[None]:
    yield from replicas_lost(context, context.replicas_on(brokers))


def replicas_lost(context: Context, replicas: Collection[Replica]) -> Steps[None]:
    """Replicas are no longer online, their broker or their disk being dead: others lead, and they leave the ISR."""
    begun = [replica for replica in replicas if context.has_begun_deletion(replica.topic)]
    served = [replica for replica in replicas if not context.has_begun_deletion(replica.topic)]
    leaderless = [
        partition
        for partition in dict.fromkeys(replica.topic_partition for replica in served)
        if context.partition_state(partition) is PartitionLife.ONLINE and not context.has_leader_online(partition)
    ]
    partitions_offline(context, leaderless)
    results = yield from elect_missing(context)
    yield from move_offline(context, served, fresh=results.elected)
    replicas_died(context, begun)
    if not served:
        yield from brokers_changed(context)
    yield from _end_moves(context, results)
    yield from continue_deletions(context)


def disks_failed(context: Context, broker: int) -> Steps[None]:
    """A broker has lost a disk. Which replicas were on it, its answer to this will tell."""
    yield from replicas_online(
        context,
        [
            replica
            for replica in context.replicas_on([broker])
            if context.replica_state(replica) is ReplicaLife.ONLINE and not context.has_begun_deletion(replica.topic)
        ],
    )


def leaders_answered(
    context: Context, broker: int, lost: Iterable[TopicPartition], fine: Iterable[TopicPartition]
) -> Steps[None]:
    """A broker's answer to LeaderAndIsr: which of the replicas are on a disk that does not work."""
    for partition in fine:
        context.replica_found(broker, partition)
    news = [
        partition
        for partition in lost
        if context.has_partition(partition) and partition not in context.lost_replicas(broker)
    ]
    for partition in news:
        context.replica_lost(broker, partition)
    if news:
        yield from replicas_lost(
            context,
            [Replica(*one, broker) for one in news if broker in context.assignment(one).replicas],
        )


def topics_seen(context: Context, seen: Mapping[str, TopicAssignment], gone: Iterable[str] = ()) -> Steps[Elections]:
    """Topics are new or have grown, as their znodes say; or are gone from the tree without our doing."""
    for topic in gone:
        context.remove_topic(topic)
    made = [partition for topic, assigned in seen.items() for partition in context.add_topic(topic, assigned)]
    return (yield from partitions_made(context, made))


def partitions_made(context: Context, partitions: Collection[TopicPartition]) -> Steps[Elections]:
    """Partitions that the context has, and nobody was told of: each gets a leader."""
    replicas = context.replicas_of(partitions)
    for partition in partitions:
        context.move_partition(partition, PartitionLife.NEW)
    for replica in replicas:
        context.move_replica(replica, ReplicaLife.NEW)
    results = yield from elect(context, partitions, Election.OFFLINE)
    online = {one for one in replicas if context.is_online(one.broker, one.topic_partition)}
    yield from replicas_online(context, [replica for replica in replicas if replica in online])
    yield from move_offline(context, [replica for replica in replicas if replica not in online])
    return results


def broker_stops(context: Context, broker: int, broker_epoch: int = ANY_BROKER_EPOCH) -> Steps[list[TopicPartition]]:
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
    context.broker_stops(broker)
    shared = [
        partition
        for partition in sorted(context.partitions_of_broker(broker))
        if len(context.assignment(partition).replicas) > 1
        and context.leadership(partition) is not None
        and not context.has_begun_deletion(partition[0])
    ]
    led = context.partitions_led_by(broker)
    results = yield from elect(context, [one for one in shared if one in led], Election.SHUTDOWN)
    # What it leads no more it is not to follow either: it would come back into the ISR just before it goes.
    still_led = context.partitions_led_by(broker)
    yield from move_offline(
        context, [Replica(*one, broker) for one in shared if one not in still_led], fresh=results.elected
    )
    return [partition for partition in shared if partition in still_led]


def elect_missing(context: Context) -> Steps[Elections]:
    """Leaders for all partitions that have none, where that is possible."""
    waiting = context.partitions_in(PartitionLife.NEW, PartitionLife.OFFLINE)
    deleting = {topic for topic in context.topics_to_delete if standing(context, topic) is not Standing.BLOCKED}
    return (yield from elect(context, [one for one in waiting if one[0] not in deleting], Election.OFFLINE))


def unclean_allowed(context: Context, topic: str | None = None) -> Steps[Elections]:
    """``unclean.leader.election.enable`` has become true, for a topic or by default."""
    offline = context.partitions_in(PartitionLife.OFFLINE)
    wanted = [one for one in offline if topic in (None, one[0]) and not context.is_to_be_deleted(one[0])]
    results = yield from elect(context, wanted, Election.OFFLINE)
    yield from _end_moves(context, results)
    return results


def elect_leaders(
    context: Context, partitions: Iterable[TopicPartition], how: Election
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
        elif how is Election.UNCLEAN and context.has_leader_online(partition):
            answers[partition] = Refusal.NOT_NEEDED.error(name)
        else:
            wanted.append(partition)
    results = yield from elect(context, wanted, how)
    yield from _end_moves(context, results)
    answers.update(dict.fromkeys(results.elected))
    answers.update({one: refusal.error(f"{one[0]}-{one[1]}") for one, refusal in results.refused.items()})
    return answers


def rebalance_leaders(context: Context, allowed_percentage: int) -> Steps[Elections]:
    """``auto.leader.rebalance.enable``: leaders go back to where they should be, of brokers that lead too few."""
    led = [
        (partition, context.assignment(partition).replicas[0], leadership.leader)
        for partition, leadership in context.leaderships.items()
        if leadership.leader != NO_LEADER and not context.is_to_be_deleted(partition[0])
    ]
    return (yield from elect(context, imbalanced(led, allowed_percentage), Election.PREFERRED))


def _end_moves(context: Context, results: Elections) -> Steps[None]:
    """After an unclean election: who was elected may be all that the move's target wants in sync."""
    moving = [one for one, elected in results.elected.items() if elected.leadership.is_recovering]
    yield from go_on(context, [one for one in moving if context.assignment(one).is_moving])
