"""Reassignments, step by step."""

import pytest
from decisions_harness import DecisionsHarness

from headrace.controller.decisions import cluster_changes
from headrace.controller.decisions.context import Replica
from headrace.controller.decisions.leader_elections import Leadership
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.coordination.znodes import TopicAssignment
from headrace.protocol.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)

P = ("t", 0)


@pytest.fixture
def harness():
    made = DecisionsHarness(range(1, 7))
    made.create("t", (1, 2, 3), (1, 2))
    made.take_sent()
    return made


def in_tree(harness, index=0):
    assigned = harness.tree.topics["t"]
    return tuple(part.get(index, ()) for part in assigned[1:])


def test_a_move_as_in_the_table(harness):
    assert harness.reassign(P, (4, 5, 6)) is None
    assert in_tree(harness) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert harness.tree.states[P] == Leadership(1, 1, (1, 2, 3), 1, version=1)
    leads = [one for one in harness.take_sent() if one[0] == "lead"]
    assert leads == [("lead", broker, [("t", 0, 1, 1, broker > 3)]) for broker in range(1, 7)]
    assert harness.context.moving_partitions == [P]

    harness.change_isr(P, (1, 2, 3, 4, 5))
    assert harness.context.moving_partitions == [P]
    assert harness.ended_moves == []

    harness.take_sent()
    harness.change_isr(P, (1, 2, 3, 4, 5, 6))
    assert in_tree(harness) == ((4, 5, 6), (), ())
    # Another leader, then the old ones leave the ISR together.
    assert harness.tree.states[P] == Leadership(4, 3, (4, 5, 6), 1, version=5)
    sent = harness.take_sent()
    assert [one for one in sent if one[0] == "stop"] == [
        ("stop", broker, [("t", 0, 3, delete)]) for delete in (False, True) for broker in (1, 2, 3)
    ]
    assert {one[1] for one in sent if one[0] == "lead"} == {4, 5, 6}
    assert harness.ended_moves == [P]
    assert harness.context.moving_partitions == []
    assert harness.context.replica_state(Replica("t", 0, 1)) is ControllerReplicaState.NON_EXISTENT
    assert harness.context.replica_state(Replica("t", 0, 4)) is ControllerReplicaState.ONLINE


def test_a_leader_that_stays_gets_a_new_epoch_only(harness):
    harness.reassign(P, (4, 1))
    harness.change_isr(P, (1, 2, 3, 4))
    assert harness.led(P) == (1, (1, 4))
    assert in_tree(harness) == ((4, 1), (), ())


@pytest.mark.parametrize("target", [(1,), (3,), (3, 2, 1)])
def test_fewer_replicas_or_another_order_are_there_at_once(harness, target):
    assert harness.reassign(P, target) is None
    assert in_tree(harness) == (target, (), ())
    assert set(harness.led(P)[1]) == set(target)
    assert harness.led(P)[0] == (1 if 1 in target else 3)
    assert harness.ended_moves == [P]


def test_more_replicas(harness):
    harness.reassign(P, (1, 2, 3, 4))
    assert in_tree(harness) == ((1, 2, 3, 4), (4,), ())
    harness.change_isr(P, (1, 2, 3, 4))
    assert in_tree(harness) == ((1, 2, 3, 4), (), ())
    assert harness.led(P) == (1, (1, 2, 3, 4))


def test_a_cancel_drops_what_was_added(harness):
    harness.reassign(P, (4, 5, 6))
    harness.change_isr(P, (1, 2, 3, 4))
    harness.take_sent()
    assert harness.reassign(P, None) is None
    assert in_tree(harness) == ((1, 2, 3), (), ())
    assert harness.led(P) == (1, (1, 2, 3))
    deleted = [one[1] for one in harness.take_sent() if one[0] == "stop" and one[2][0][3]]
    assert deleted == [4, 5, 6]
    assert isinstance(harness.reassign(P, None), NoReassignmentInProgress)


def test_another_target_in_the_middle(harness):
    harness.reassign(P, (4, 5))
    harness.change_isr(P, (1, 2, 3, 4, 5), is_told=False)
    harness.take_sent()
    harness.reassign(P, (5, 6))
    assert in_tree(harness) == ((5, 6, 1, 2, 3), (5, 6), (1, 2, 3))
    assert harness.led(P) == (1, (1, 2, 3, 5))
    deleted = [one[1] for one in harness.take_sent() if one[0] == "stop" and one[2][0][3]]
    assert deleted == [4]


def test_a_dropped_leader_hands_over_first(harness):
    harness.reassign(P, (4, 5, 6))
    harness.change_isr(P, (1, 2, 4))
    harness.kill(1)
    assert harness.led(P) == (4, (2, 4))
    assert harness.reassign(P, None) is None
    assert harness.led(P) == (2, (2,))
    assert harness.context.partition_state(P) is ControllerPartitionState.ONLINE


def test_the_only_ones_in_sync_are_not_dropped(harness):
    harness.reassign(P, (4, 5, 6))
    harness.change_isr(P, (1, 4))
    harness.kill(1)
    assert harness.led(P) == (4, (4,))
    for target in (None, (5, 6)):
        before = harness.tree.states[P]
        assert isinstance(harness.reassign(P, target), InvalidReplicaAssignment)
        assert harness.tree.states[P] == before
        assert in_tree(harness)[1] == (4, 5, 6)


def test_only_the_tree_tells_that_the_others_left_the_isr(harness):
    harness.reassign(P, (4, 5, 6))
    harness.change_isr(P, (1, 2, 4))
    harness.kill(1)
    harness.tree.change_isr(P, (4,))
    assert isinstance(harness.reassign(P, None), InvalidReplicaAssignment)


def test_the_leader_that_is_to_be_dropped_shrinks_the_isr_just_then(harness):
    harness.reassign(P, (4, 5, 6))
    harness.change_isr(P, (1, 2, 4))
    harness.kill(1)

    def shrink():
        harness.tree.before_write = lambda: None
        harness.tree.change_isr(P, (4,))

    harness.tree.before_write = shrink
    assert isinstance(harness.reassign(P, None), InvalidReplicaAssignment)
    assert harness.led(P) == (4, (4,))
    assert in_tree(harness)[1] == (4, 5, 6)


def test_the_target_falls_out_of_sync_just_before_the_end(harness):
    harness.reassign(P, (4, 5, 6))

    def shrink():
        harness.tree.before_write = lambda: None
        harness.tree.change_isr(P, (1, 2, 3, 4))

    harness.tree.before_write = shrink
    harness.change_isr(P, (1, 2, 3, 4, 5, 6))
    assert harness.context.moving_partitions == [P]
    assert harness.led(P) == (1, (1, 2, 3, 4))
    assert in_tree(harness) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    harness.change_isr(P, (1, 4, 5, 6))
    assert in_tree(harness) == ((4, 5, 6), (), ())


def test_a_controller_that_takes_over_goes_on(harness):
    harness.reassign(P, (4, 5, 6))
    harness.tree.change_isr(P, (1, 2, 3, 4, 5, 6))
    harness.fail_over(2)
    assert in_tree(harness) == ((4, 5, 6), (), ())
    assert harness.led(P) == (4, (4, 5, 6))


def test_a_controller_that_takes_over_after_the_old_ones_were_stopped(harness):
    """The last step, the topic's znode, was not written."""
    harness.tree.topics["t"] = TopicAssignment(None, {0: (4, 1), 1: (1, 2)}, {0: (4,)}, {0: (1,)})
    harness.tree.states[P] = Leadership(4, 9, (4,), 1, version=7)
    harness.fail_over(2)
    assert in_tree(harness) == ((4,), (), ())
    assert harness.led(P) == (4, (4,))


def test_a_new_replica_comes_back(harness):
    harness.reassign(P, (4, 5, 6))
    harness.kill(4)
    harness.take_sent()
    harness.start(4)
    told = [one for one in harness.take_sent() if one[:2] == ("lead", 4)]
    assert told[-1][2][0][-1] is True, "it may be made on any disk"


def test_several_partitions_of_a_topic_are_one_write(harness):
    effects = []
    perform = harness.perform
    harness.perform = lambda effect: (effects.append(type(effect).__name__), perform(effect))[1]
    answers = harness.run(
        cluster_changes.reassign(harness.context, {P: (4, 5), ("t", 1): (5, 4), ("t", 2): (1,), ("u", 0): None})
    )
    assert [type(error) for error in answers.values()] == [
        type(None),
        type(None),
        UnknownTopicOrPartition,
        UnknownTopicOrPartition,
    ]
    assert effects == ["ReadStates", "WriteTopic", "WriteStates", "Send"]
    assert in_tree(harness, 1) == ((5, 4, 1, 2), (5, 4), (1, 2))


def test_bad_targets_change_nothing(harness):
    for target in ((), (1, 1), (-1,), (1, 99)):
        assert isinstance(harness.reassign(P, target), InvalidReplicaAssignment)
    assert isinstance(harness.reassign(P, (1,), may_change_count=False), InvalidReplicationFactor)
    assert in_tree(harness) == ((1, 2, 3), (), ())
    assert harness.take_sent() == []


def test_a_partition_that_never_had_a_leader_has_nothing_to_move(harness):
    harness.kill(6)
    harness.create("u", (6,))
    assert isinstance(harness.reassign(("u", 0), (1,)), InvalidReplicaAssignment)


def test_an_isr_notification_of_a_topic_that_is_gone_is_nothing(harness):
    harness.run(cluster_changes.on_isr_change(harness.context, [("gone", 0)]))
    assert harness.take_sent() == []


def test_an_isr_notification_is_told_to_all(harness):
    harness.change_isr(P, (1, 2))
    assert harness.take_sent() == [("metadata", broker, [("t", 0, 1)]) for broker in range(1, 7)]
    assert harness.context.leadership(P) == harness.tree.states[P]
