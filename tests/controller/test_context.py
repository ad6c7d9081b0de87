"""What the controller knows. Its indexes are compared with a search in the model's test."""

from uuid import UUID

import pytest
from controllerbed import live_broker

from headrace.controller.context import Context, Replica
from headrace.controller.elections import Leadership
from headrace.controller.partition_states import IllegalTransition, PartitionLife
from headrace.controller.reassignments import Assignment
from headrace.controller.replica_states import ReplicaLife
from headrace.coordination.znodes import TopicAssignment

P = ("t", 0)
TOPIC = TopicAssignment(UUID(int=1), {0: (1, 2), 1: (3, 2, 1)}, {1: (3,)}, {1: (1,)})


@pytest.fixture
def context():
    made = Context(1, 5)
    for broker, rack in ((1, "a"), (2, "b"), (3, None)):
        made.broker_came(live_broker(broker, rack=rack))
    made.add_topic("t", TOPIC)
    return made


def test_brokers_that_stop_live_and_are_no_candidates(context):
    context.broker_stops(2)
    assert context.live_brokers == [1, 3]
    assert context.broker_ids == [1, 2, 3]
    assert context.racks == {1: "a", 3: None}
    assert context.online(P) == {1}
    assert context.online(P, with_stopping=True) == {1, 2}
    context.broker_went(2)
    assert context.stopping_brokers == frozenset()
    assert context.broker(2) is None


def test_a_broker_with_another_epoch_has_been_restarted(context):
    context.broker_stops(2)
    context.replica_lost(2, P)
    context.broker_came(live_broker(2, rack="c"))
    assert context.stopping_brokers == {2}, "it has only changed its rack"
    assert context.lost_replicas(2) == {P}
    context.broker_came(live_broker(2, epoch=2))
    assert context.is_online(2, P)


def test_lost_replicas(context):
    context.replica_lost(1, P)
    assert not context.is_online(1, P)
    assert context.is_online(1, ("t", 1))
    context.replica_found(1, P)
    assert context.is_online(1, P)
    context.replica_found(9, P)


def test_topics_and_their_replicas(context):
    assert list(context.topics) == ["t"]
    assert context.topic_assignment("t") == TOPIC
    assert context.moving_partitions == [("t", 1)]
    assert context.partitions_of_topic("t") == [P, ("t", 1)]
    assert context.partitions_of_broker(3) == {("t", 1)}
    assert context.replicas_of([P]) == [Replica("t", 0, 1), Replica("t", 0, 2)]
    assert context.replicas_on([3, 9]) == [Replica("t", 1, 3)]
    assert len(context.replicas_of_topic("t")) == 5


def test_a_topic_that_grew_keeps_what_is_known_of_the_others(context):
    context.set_assignment(("t", 1), Assignment((3, 2)))
    assert context.add_topic("t", TOPIC._replace(partitions={**TOPIC.partitions, 2: (1,)})) == [("t", 2)]
    assert context.assignment(("t", 1)) == Assignment((3, 2))
    assert context.moving_partitions == []


def test_nothing_is_left_of_a_removed_topic(context):
    context.set_leadership(P, Leadership(1, 0, (1,), 5))
    context.initialise_states()
    context.replica_lost(1, P)
    context.queue_deletion("t")
    context.begin_deletion("t")
    context.unclean_topics["t"] = True
    context.remove_topic("t")
    context.remove_topic("never")
    assert not context.has_topic("t")
    assert not context.has_partition(P)
    assert context.leadership(P) is None
    assert context.partitions_led_by(1) == context.partitions_of_broker(1) == frozenset()
    assert context.partition_state(P) is PartitionLife.NON_EXISTENT
    assert context.replica_state(Replica("t", 0, 1)) is ReplicaLife.NON_EXISTENT
    assert context.partitions_in(*PartitionLife) == []
    assert context.moving_partitions == context.topics_to_delete == []
    assert context.lost_replicas(1) == frozenset()
    assert not context.has_begun_deletion("t")
    assert not context.allows_unclean("t")


def test_states_of_what_was_read(context):
    context.broker_went(3)
    context.set_leadership(P, Leadership(1, 4, (1, 2), 5))
    context.set_leadership(("t", 1), Leadership(3, 4, (3,), 5))
    context.add_topic("u", TopicAssignment(None, {0: (3, 1)}))
    context.queue_deletion("u")
    context.initialise_states()
    assert context.partitions_in(PartitionLife.ONLINE) == [P]
    assert context.partitions_in(PartitionLife.OFFLINE) == [("t", 1)]
    assert context.partitions_in(PartitionLife.NEW) == [("u", 0)]
    assert context.replica_state(Replica("t", 1, 3)) is ReplicaLife.OFFLINE
    assert context.replica_state(Replica("u", 0, 3)) is ReplicaLife.DELETION_INELIGIBLE
    assert context.replica_state(Replica("u", 0, 1)) is ReplicaLife.ONLINE


def test_illegal_steps_change_nothing(context):
    with pytest.raises(IllegalTransition):
        context.move_partition(P, PartitionLife.ONLINE)
    with pytest.raises(IllegalTransition):
        context.move_replica(Replica("t", 0, 1), ReplicaLife.ONLINE)
    assert context.partition_state(P) is PartitionLife.NON_EXISTENT
    assert context.replica_state(Replica("t", 0, 1)) is ReplicaLife.NON_EXISTENT
