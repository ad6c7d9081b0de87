"""The controller context. ``test_decisions_model.py`` compares its indexes with a full search."""

from uuid import UUID

import pytest
from decisions_harness import live_broker

from headrace.controller.decisions.context import ControllerContext, Replica
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.partition_states import ControllerPartitionState, IllegalTransition
from headrace.controller.decisions.reassignments import Assignment
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.coordination.znodes import TopicAssignment

P = ("t", 0)
TOPIC = TopicAssignment(UUID(int=1), {0: (1, 2), 1: (3, 2, 1)}, {1: (3,)}, {1: (1,)})


@pytest.fixture
def context():
    made = ControllerContext(1, 5)
    for broker, rack in ((1, "a"), (2, "b"), (3, None)):
        made.add_broker(live_broker(broker, rack=rack))
    made.add_topic("t", TOPIC)
    return made


def test_brokers_that_stop_live_and_are_no_candidates(context):
    context.start_broker_shutdown(2)
    assert context.live_brokers == [1, 3]
    assert context.broker_ids == [1, 2, 3]
    assert context.racks == {1: "a", 3: None}
    assert context.online_replicas(P) == {1}
    assert context.online_replicas(P, include_shutting_down=True) == {1, 2}
    context.remove_broker(2)
    assert context.shutting_down_brokers == frozenset()
    assert context.broker(2) is None


def test_a_broker_with_another_epoch_has_been_restarted(context):
    context.start_broker_shutdown(2)
    context.mark_replica_failed(2, P)
    context.add_broker(live_broker(2, rack="c"))
    assert context.shutting_down_brokers == {2}, "it has only changed its rack"
    assert context.failed_replicas(2) == {P}
    context.add_broker(live_broker(2, epoch=2))
    assert context.is_online(2, P)


def test_lost_replicas(context):
    context.mark_replica_failed(1, P)
    assert not context.is_online(1, P)
    assert context.is_online(1, ("t", 1))
    context.mark_replica_working(1, P)
    assert context.is_online(1, P)
    context.mark_replica_working(9, P)


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
    context.mark_replica_failed(1, P)
    context.queue_deletion("t")
    context.start_deletion("t")
    context.unclean_topics["t"] = True
    context.remove_topic("t")
    context.remove_topic("never")
    assert not context.has_topic("t")
    assert not context.has_partition(P)
    assert context.leadership(P) is None
    assert context.partitions_led_by(1) == context.partitions_of_broker(1) == frozenset()
    assert context.partition_state(P) is ControllerPartitionState.NON_EXISTENT
    assert context.replica_state(Replica("t", 0, 1)) is ControllerReplicaState.NON_EXISTENT
    assert context.partitions_in(*ControllerPartitionState) == []
    assert context.moving_partitions == context.topics_to_delete == []
    assert context.failed_replicas(1) == frozenset()
    assert not context.has_deletion_started("t")
    assert not context.allows_unclean("t")


def test_states_of_what_was_read(context):
    context.remove_broker(3)
    context.set_leadership(P, Leadership(1, 4, (1, 2), 5))
    context.set_leadership(("t", 1), Leadership(3, 4, (3,), 5))
    context.add_topic("u", TopicAssignment(None, {0: (3, 1)}))
    context.queue_deletion("u")
    context.initialise_states()
    assert context.partitions_in(ControllerPartitionState.ONLINE) == [P]
    assert context.partitions_in(ControllerPartitionState.OFFLINE) == [("t", 1)]
    assert context.partitions_in(ControllerPartitionState.NEW) == [("u", 0)]
    assert context.replica_state(Replica("t", 1, 3)) is ControllerReplicaState.OFFLINE
    assert context.replica_state(Replica("u", 0, 3)) is ControllerReplicaState.DELETION_INELIGIBLE
    assert context.replica_state(Replica("u", 0, 1)) is ControllerReplicaState.ONLINE


def test_illegal_steps_change_nothing(context):
    with pytest.raises(IllegalTransition):
        context.move_partition(P, ControllerPartitionState.ONLINE)
    with pytest.raises(IllegalTransition):
        context.move_replica(Replica("t", 0, 1), ControllerReplicaState.ONLINE)
    assert context.partition_state(P) is ControllerPartitionState.NON_EXISTENT
    assert context.replica_state(Replica("t", 0, 1)) is ControllerReplicaState.NON_EXISTENT
