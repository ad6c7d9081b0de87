"""Topics are deleted replica by replica."""

import pytest
from decisions_harness import DecisionsHarness

from headrace.controller.decisions.broker_requests import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from headrace.controller.decisions.context import Replica
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.controller.decisions.topic_deletions import DeletionState, deletion_state
from headrace.protocol.errors import UnknownTopicOrPartition

P = ("t", 0)


@pytest.fixture
def harness():
    made = DecisionsHarness()
    made.create("t", (1, 2), (2, 3))
    made.take_sent()
    return made


def test_all_forget_it_then_its_replicas_delete_then_its_znodes_go(harness):
    assert harness.delete("t") == []
    assert harness.take_sent() == [
        *(
            ("metadata", broker, [("t", 0, LEADER_DURING_DELETE), ("t", 1, LEADER_DURING_DELETE)])
            for broker in (1, 2, 3)
        ),
        ("stop", 1, [("t", 0, EPOCH_DURING_DELETE, True)]),
        ("stop", 2, [("t", 0, EPOCH_DURING_DELETE, True), ("t", 1, EPOCH_DURING_DELETE, True)]),
        ("stop", 3, [("t", 1, EPOCH_DURING_DELETE, True)]),
    ]
    assert harness.context.partition_state(P) is ControllerPartitionState.NON_EXISTENT
    assert deletion_state(harness.context, "t") is DeletionState.IN_PROGRESS
    harness.answer_stops(1)
    harness.answer_stops(2)
    assert "t" in harness.tree.topics
    harness.answer_stops(3)
    assert not harness.tree.topics
    assert not harness.tree.states
    assert not harness.tree.topics_to_delete
    assert not harness.context.has_topic("t")
    assert harness.context.replicas_on([1, 2, 3]) == []


def test_the_name_can_be_used_again(harness):
    harness.delete("t")
    for broker in (1, 2, 3):
        harness.answer_stops(broker)
    harness.create("t", (3, 1))
    assert harness.led(P) == (3, (3, 1))
    assert harness.context.partition_state(P) is ControllerPartitionState.ONLINE


def test_a_dead_broker_is_waited_for(harness):
    harness.kill(2)
    harness.delete("t")
    harness.answer_stops(1)
    harness.answer_stops(3)
    assert deletion_state(harness.context, "t") is DeletionState.WAITING
    assert harness.context.replica_state(Replica("t", 0, 2)) is ControllerReplicaState.DELETION_INELIGIBLE
    harness.take_sent()
    harness.start(2)
    assert [one for one in harness.take_sent() if one[0] != "metadata"] == [
        ("stop", 2, [("t", 0, EPOCH_DURING_DELETE, True), ("t", 1, EPOCH_DURING_DELETE, True)])
    ]
    harness.answer_stops(2)
    assert not harness.tree.topics


def test_a_broker_that_dies_in_the_middle_is_asked_again(harness):
    harness.delete("t")
    harness.answer_stops(1)
    harness.answer_stops(2)
    harness.kill(3)
    assert deletion_state(harness.context, "t") is DeletionState.WAITING
    harness.start(3)
    harness.answer_stops(3)
    assert not harness.tree.topics


def test_one_that_comes_back_while_others_still_delete_is_told_at_once(harness):
    harness.kill(3)
    harness.delete("t")
    harness.take_sent()
    harness.start(3)
    assert ("stop", 3, [("t", 1, EPOCH_DURING_DELETE, True)]) in harness.take_sent()


def test_an_error_is_waited_out_until_the_broker_is_restarted(harness):
    harness.delete("t")
    harness.answer_stops(1)
    harness.answer_stops(3)
    harness.answer_stops(2, failed=[("t", 1)])
    assert deletion_state(harness.context, "t") is DeletionState.WAITING
    harness.kill(2)
    harness.start(2)
    harness.answer_stops(2)
    assert not harness.tree.topics


def test_it_waits_for_a_reassignment(harness):
    assert harness.reassign(P, (3, 2)) is None
    harness.delete("t")
    assert deletion_state(harness.context, "t") is DeletionState.BLOCKED
    assert harness.context.partition_state(("t", 1)) is ControllerPartitionState.ONLINE
    assert isinstance(harness.reassign(P, None), UnknownTopicOrPartition)
    harness.change_isr(P, (1, 2, 3))
    assert deletion_state(harness.context, "t") is DeletionState.IN_PROGRESS
    for broker in (1, 2, 3):
        harness.answer_stops(broker)
    assert not harness.tree.topics


def test_a_leader_that_dies_while_it_waits_is_replaced_so_that_the_move_ends(harness):
    harness.reassign(P, (3, 2))
    harness.delete("t")
    harness.kill(1)
    assert harness.led(P) == (2, (2,))
    harness.change_isr(P, (2, 3))
    assert deletion_state(harness.context, "t") is DeletionState.IN_PROGRESS


def test_a_controller_that_takes_over_begins_again(harness):
    harness.kill(3)
    harness.delete("t")
    harness.answer_stops(1)
    harness.deleting.clear()
    harness.fail_over(2)
    assert harness.deleting == {1: {P}, 2: {P, ("t", 1)}}
    harness.answer_stops(1)
    harness.answer_stops(2)
    harness.start(3)
    harness.answer_stops(3)
    assert not harness.tree.topics


def test_what_does_not_exist_is_named(harness):
    assert harness.delete("u", "t") == ["u"]


def test_a_topic_without_partitions_is_gone_at_once(harness):
    harness.create("empty")
    harness.delete("empty")
    assert "empty" not in harness.tree.topics


def test_a_partition_that_never_had_a_leader_can_be_deleted(harness):
    harness.kill(3)
    harness.create("u", (3,))
    harness.delete("u")
    harness.start(3)
    harness.answer_stops(3)
    assert "u" not in harness.tree.topics


def test_answers_nobody_asked_for_mean_nothing(harness):
    harness.deleting[1] = {P, ("u", 0)}
    harness.answer_stops(1)
    assert harness.context.replica_state(Replica("t", 0, 1)) is ControllerReplicaState.ONLINE
