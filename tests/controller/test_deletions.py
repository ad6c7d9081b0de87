"""Topics go replica by replica."""

import pytest
from controllerbed import Bed

from headrace.controller.context import Replica
from headrace.controller.deletions import Standing, standing
from headrace.controller.partition_states import PartitionLife
from headrace.controller.replica_states import ReplicaLife
from headrace.controller.requests import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from headrace.protocol.errors import UnknownTopicOrPartition

P = ("t", 0)


@pytest.fixture
def bed():
    made = Bed()
    made.create("t", (1, 2), (2, 3))
    made.take_sent()
    return made


def test_all_forget_it_then_its_replicas_delete_then_its_znodes_go(bed):
    assert bed.delete("t") == []
    assert bed.take_sent() == [
        *(
            ("metadata", broker, [("t", 0, LEADER_DURING_DELETE), ("t", 1, LEADER_DURING_DELETE)])
            for broker in (1, 2, 3)
        ),
        ("stop", 1, [("t", 0, EPOCH_DURING_DELETE, True)]),
        ("stop", 2, [("t", 0, EPOCH_DURING_DELETE, True), ("t", 1, EPOCH_DURING_DELETE, True)]),
        ("stop", 3, [("t", 1, EPOCH_DURING_DELETE, True)]),
    ]
    assert bed.context.partition_state(P) is PartitionLife.NON_EXISTENT
    assert standing(bed.context, "t") is Standing.UNDER_WAY
    bed.answer_stops(1)
    bed.answer_stops(2)
    assert "t" in bed.tree.topics
    bed.answer_stops(3)
    assert not bed.tree.topics
    assert not bed.tree.states
    assert not bed.tree.wishes
    assert not bed.context.has_topic("t")
    assert bed.context.replicas_on([1, 2, 3]) == []


def test_the_name_can_be_used_again(bed):
    bed.delete("t")
    for broker in (1, 2, 3):
        bed.answer_stops(broker)
    bed.create("t", (3, 1))
    assert bed.led(P) == (3, (3, 1))
    assert bed.context.partition_state(P) is PartitionLife.ONLINE


def test_a_dead_broker_is_waited_for(bed):
    bed.kill(2)
    bed.delete("t")
    bed.answer_stops(1)
    bed.answer_stops(3)
    assert standing(bed.context, "t") is Standing.WAITING
    assert bed.context.replica_state(Replica("t", 0, 2)) is ReplicaLife.DELETION_INELIGIBLE
    bed.take_sent()
    bed.start(2)
    assert [one for one in bed.take_sent() if one[0] != "metadata"] == [
        ("stop", 2, [("t", 0, EPOCH_DURING_DELETE, True), ("t", 1, EPOCH_DURING_DELETE, True)])
    ]
    bed.answer_stops(2)
    assert not bed.tree.topics


def test_a_broker_that_dies_in_the_middle_is_asked_again(bed):
    bed.delete("t")
    bed.answer_stops(1)
    bed.answer_stops(2)
    bed.kill(3)
    assert standing(bed.context, "t") is Standing.WAITING
    bed.start(3)
    bed.answer_stops(3)
    assert not bed.tree.topics


def test_one_that_comes_back_while_others_still_delete_is_told_at_once(bed):
    bed.kill(3)
    bed.delete("t")
    bed.take_sent()
    bed.start(3)
    assert ("stop", 3, [("t", 1, EPOCH_DURING_DELETE, True)]) in bed.take_sent()


def test_an_error_is_waited_out_until_the_broker_is_restarted(bed):
    bed.delete("t")
    bed.answer_stops(1)
    bed.answer_stops(3)
    bed.answer_stops(2, failed=[("t", 1)])
    assert standing(bed.context, "t") is Standing.WAITING
    bed.kill(2)
    bed.start(2)
    bed.answer_stops(2)
    assert not bed.tree.topics


def test_it_waits_for_a_reassignment(bed):
    assert bed.reassign(P, (3, 2)) is None
    bed.delete("t")
    assert standing(bed.context, "t") is Standing.BLOCKED
    assert bed.context.partition_state(("t", 1)) is PartitionLife.ONLINE
    assert isinstance(bed.reassign(P, None), UnknownTopicOrPartition)
    bed.change_isr(P, (1, 2, 3))
    assert standing(bed.context, "t") is Standing.UNDER_WAY
    for broker in (1, 2, 3):
        bed.answer_stops(broker)
    assert not bed.tree.topics


def test_a_leader_that_dies_while_it_waits_is_replaced_so_that_the_move_ends(bed):
    bed.reassign(P, (3, 2))
    bed.delete("t")
    bed.kill(1)
    assert bed.led(P) == (2, (2,))
    bed.change_isr(P, (2, 3))
    assert standing(bed.context, "t") is Standing.UNDER_WAY


def test_a_controller_that_takes_over_begins_again(bed):
    bed.kill(3)
    bed.delete("t")
    bed.answer_stops(1)
    bed.deleting.clear()
    bed.fail_over(2)
    assert bed.deleting == {1: {P}, 2: {P, ("t", 1)}}
    bed.answer_stops(1)
    bed.answer_stops(2)
    bed.start(3)
    bed.answer_stops(3)
    assert not bed.tree.topics


def test_what_does_not_exist_is_named(bed):
    assert bed.delete("u", "t") == ["u"]


def test_a_topic_without_partitions_is_gone_at_once(bed):
    bed.create("empty")
    bed.delete("empty")
    assert "empty" not in bed.tree.topics


def test_a_partition_that_never_had_a_leader_can_be_deleted(bed):
    bed.kill(3)
    bed.create("u", (3,))
    bed.delete("u")
    bed.start(3)
    bed.answer_stops(3)
    assert "u" not in bed.tree.topics


def test_answers_nobody_asked_for_mean_nothing(bed):
    bed.deleting[1] = {P, ("u", 0)}
    bed.answer_stops(1)
    assert bed.context.replica_state(Replica("t", 0, 1)) is ReplicaLife.ONLINE
