"""Reassignments, step by step."""

import pytest
from controllerbed import Bed

from headrace.controller import duties
from headrace.controller.context import Replica
from headrace.controller.elections import Leadership
from headrace.controller.partition_states import PartitionLife
from headrace.controller.replica_states import ReplicaLife
from headrace.coordination.znodes import TopicAssignment
from headrace.protocol.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)

P = ("t", 0)


@pytest.fixture
def bed():
    made = Bed(range(1, 7))
    made.create("t", (1, 2, 3), (1, 2))
    made.take_sent()
    return made


def in_tree(bed, index=0):
    assigned = bed.tree.topics["t"]
    return tuple(part.get(index, ()) for part in assigned[1:])


def test_a_move_as_in_the_table(bed):
    assert bed.reassign(P, (4, 5, 6)) is None
    assert in_tree(bed) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert bed.tree.states[P] == Leadership(1, 1, (1, 2, 3), 1, version=1)
    leads = [one for one in bed.take_sent() if one[0] == "lead"]
    assert leads == [("lead", broker, [("t", 0, 1, 1, broker > 3)]) for broker in range(1, 7)]
    assert bed.context.moving_partitions == [P]

    bed.change_isr(P, (1, 2, 3, 4, 5))
    assert bed.context.moving_partitions == [P]
    assert bed.ended_moves == []

    bed.take_sent()
    bed.change_isr(P, (1, 2, 3, 4, 5, 6))
    assert in_tree(bed) == ((4, 5, 6), (), ())
    # Another leader, then the old ones leave the ISR together.
    assert bed.tree.states[P] == Leadership(4, 3, (4, 5, 6), 1, version=5)
    sent = bed.take_sent()
    assert [one for one in sent if one[0] == "stop"] == [
        ("stop", broker, [("t", 0, 3, delete)]) for delete in (False, True) for broker in (1, 2, 3)
    ]
    assert {one[1] for one in sent if one[0] == "lead"} == {4, 5, 6}
    assert bed.ended_moves == [P]
    assert bed.context.moving_partitions == []
    assert bed.context.replica_state(Replica("t", 0, 1)) is ReplicaLife.NON_EXISTENT
    assert bed.context.replica_state(Replica("t", 0, 4)) is ReplicaLife.ONLINE


def test_a_leader_that_stays_gets_a_new_epoch_only(bed):
    bed.reassign(P, (4, 1))
    bed.change_isr(P, (1, 2, 3, 4))
    assert bed.led(P) == (1, (1, 4))
    assert in_tree(bed) == ((4, 1), (), ())


@pytest.mark.parametrize("target", [(1,), (3,), (3, 2, 1)])
def test_fewer_replicas_or_another_order_are_there_at_once(bed, target):
    assert bed.reassign(P, target) is None
    assert in_tree(bed) == (target, (), ())
    assert set(bed.led(P)[1]) == set(target)
    assert bed.led(P)[0] == (1 if 1 in target else 3)
    assert bed.ended_moves == [P]


def test_more_replicas(bed):
    bed.reassign(P, (1, 2, 3, 4))
    assert in_tree(bed) == ((1, 2, 3, 4), (4,), ())
    bed.change_isr(P, (1, 2, 3, 4))
    assert in_tree(bed) == ((1, 2, 3, 4), (), ())
    assert bed.led(P) == (1, (1, 2, 3, 4))


def test_a_cancel_drops_what_was_added(bed):
    bed.reassign(P, (4, 5, 6))
    bed.change_isr(P, (1, 2, 3, 4))
    bed.take_sent()
    assert bed.reassign(P, None) is None
    assert in_tree(bed) == ((1, 2, 3), (), ())
    assert bed.led(P) == (1, (1, 2, 3))
    deleted = [one[1] for one in bed.take_sent() if one[0] == "stop" and one[2][0][3]]
    assert deleted == [4, 5, 6]
    assert isinstance(bed.reassign(P, None), NoReassignmentInProgress)


def test_another_target_in_the_middle(bed):
    bed.reassign(P, (4, 5))
    bed.change_isr(P, (1, 2, 3, 4, 5), is_told=False)
    bed.take_sent()
    bed.reassign(P, (5, 6))
    assert in_tree(bed) == ((5, 6, 1, 2, 3), (5, 6), (1, 2, 3))
    assert bed.led(P) == (1, (1, 2, 3, 5))
    deleted = [one[1] for one in bed.take_sent() if one[0] == "stop" and one[2][0][3]]
    assert deleted == [4]


def test_a_dropped_leader_hands_over_first(bed):
    bed.reassign(P, (4, 5, 6))
    bed.change_isr(P, (1, 2, 4))
    bed.kill(1)
    assert bed.led(P) == (4, (2, 4))
    assert bed.reassign(P, None) is None
    assert bed.led(P) == (2, (2,))
    assert bed.context.partition_state(P) is PartitionLife.ONLINE


def test_the_only_ones_in_sync_are_not_dropped(bed):
    bed.reassign(P, (4, 5, 6))
    bed.change_isr(P, (1, 4))
    bed.kill(1)
    assert bed.led(P) == (4, (4,))
    for target in (None, (5, 6)):
        before = bed.tree.states[P]
        assert isinstance(bed.reassign(P, target), InvalidReplicaAssignment)
        assert bed.tree.states[P] == before
        assert in_tree(bed)[1] == (4, 5, 6)


def test_only_the_tree_tells_that_the_others_left_the_isr(bed):
    bed.reassign(P, (4, 5, 6))
    bed.change_isr(P, (1, 2, 4))
    bed.kill(1)
    bed.tree.change_isr(P, (4,))
    assert isinstance(bed.reassign(P, None), InvalidReplicaAssignment)


def test_the_leader_that_is_to_be_dropped_shrinks_the_isr_just_then(bed):
    bed.reassign(P, (4, 5, 6))
    bed.change_isr(P, (1, 2, 4))
    bed.kill(1)

    def shrink():
        bed.tree.before_write = lambda: None
        bed.tree.change_isr(P, (4,))

    bed.tree.before_write = shrink
    assert isinstance(bed.reassign(P, None), InvalidReplicaAssignment)
    assert bed.led(P) == (4, (4,))
    assert in_tree(bed)[1] == (4, 5, 6)


def test_the_target_falls_out_of_sync_just_before_the_end(bed):
    bed.reassign(P, (4, 5, 6))

    def shrink():
        bed.tree.before_write = lambda: None
        bed.tree.change_isr(P, (1, 2, 3, 4))

    bed.tree.before_write = shrink
    bed.change_isr(P, (1, 2, 3, 4, 5, 6))
    assert bed.context.moving_partitions == [P]
    assert bed.led(P) == (1, (1, 2, 3, 4))
    assert in_tree(bed) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    bed.change_isr(P, (1, 4, 5, 6))
    assert in_tree(bed) == ((4, 5, 6), (), ())


def test_a_controller_that_takes_over_goes_on(bed):
    bed.reassign(P, (4, 5, 6))
    bed.tree.change_isr(P, (1, 2, 3, 4, 5, 6))
    bed.fail_over(2)
    assert in_tree(bed) == ((4, 5, 6), (), ())
    assert bed.led(P) == (4, (4, 5, 6))


def test_a_controller_that_takes_over_after_the_old_ones_were_stopped(bed):
    """The last step, the topic's znode, was not written."""
    bed.tree.topics["t"] = TopicAssignment(None, {0: (4, 1), 1: (1, 2)}, {0: (4,)}, {0: (1,)})
    bed.tree.states[P] = Leadership(4, 9, (4,), 1, version=7)
    bed.fail_over(2)
    assert in_tree(bed) == ((4,), (), ())
    assert bed.led(P) == (4, (4,))


def test_a_new_replica_comes_back(bed):
    bed.reassign(P, (4, 5, 6))
    bed.kill(4)
    bed.take_sent()
    bed.start(4)
    told = [one for one in bed.take_sent() if one[:2] == ("lead", 4)]
    assert told[-1][2][0][-1] is True, "it may be made on any disk"


def test_several_partitions_of_a_topic_are_one_write(bed):
    effects = []
    perform = bed.perform
    bed.perform = lambda effect: (effects.append(type(effect).__name__), perform(effect))[1]
    answers = bed.run(duties.reassign(bed.context, {P: (4, 5), ("t", 1): (5, 4), ("t", 2): (1,), ("u", 0): None}))
    assert [type(error) for error in answers.values()] == [
        type(None),
        type(None),
        UnknownTopicOrPartition,
        UnknownTopicOrPartition,
    ]
    assert effects == ["ReadStates", "WriteTopic", "WriteStates", "Send"]
    assert in_tree(bed, 1) == ((5, 4, 1, 2), (5, 4), (1, 2))


def test_bad_targets_change_nothing(bed):
    for target in ((), (1, 1), (-1,), (1, 99)):
        assert isinstance(bed.reassign(P, target), InvalidReplicaAssignment)
    assert isinstance(bed.reassign(P, (1,), may_change_count=False), InvalidReplicationFactor)
    assert in_tree(bed) == ((1, 2, 3), (), ())
    assert bed.take_sent() == []


def test_a_partition_that_never_had_a_leader_has_nothing_to_move(bed):
    bed.kill(6)
    bed.create("u", (6,))
    assert isinstance(bed.reassign(("u", 0), (1,)), InvalidReplicaAssignment)


def test_an_isr_notification_of_a_topic_that_is_gone_is_nothing(bed):
    bed.run(duties.isr_changed(bed.context, [("gone", 0)]))
    assert bed.take_sent() == []


def test_an_isr_notification_is_told_to_all(bed):
    bed.change_isr(P, (1, 2))
    assert bed.take_sent() == [("metadata", broker, [("t", 0, 1)]) for broker in range(1, 7)]
    assert bed.context.leadership(P) == bed.tree.states[P]
