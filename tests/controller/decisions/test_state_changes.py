"""Changes of states: writes to ZooKeeper, requests to brokers, and writes that ZooKeeper rejects."""

import pytest
from decisions_harness import DecisionsHarness

from headrace.controller.decisions import state_changes
from headrace.controller.decisions.broker_requests import LeaderAndIsr, UpdateMetadata
from headrace.controller.decisions.context import Replica
from headrace.controller.decisions.leader_elections import NO_LEADER, ElectionStrategy, Leadership, Refusal
from headrace.controller.decisions.partition_states import ControllerPartitionState, IllegalTransition
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.protocol.errors import StaleControllerEpoch

P = ("t", 0)


@pytest.fixture
def harness():
    made = DecisionsHarness()
    made.create("t", (1, 2, 3))
    made.take_sent()
    return made


def test_a_new_partition_is_written_and_told_to_its_replicas_and_to_all():
    harness = DecisionsHarness([1, 2, 3, 4])
    harness.take_sent()
    harness.create("t", (1, 2))
    assert harness.tree.states[P] == Leadership(1, 0, (1, 2), 1, version=0)
    assert harness.context.leadership(P) == harness.tree.states[P]
    assert harness.take_sent() == [
        ("lead", 1, [("t", 0, 1, 0, True)]),
        ("lead", 2, [("t", 0, 1, 0, True)]),
        *(("metadata", broker, [("t", 0, 1)]) for broker in (1, 2, 3, 4)),
    ]


def test_requests_carry_what_a_broker_needs(harness):
    harness.kill(3)
    lead = next(request for request in harness.sent if isinstance(request, LeaderAndIsr))
    assert lead.controller_id == 1
    assert lead.topic_ids == {"t": harness.context.topic_id("t")}
    assert [broker.broker_id for broker in lead.live_leaders] == [1]
    assert lead.partitions[0].assignment.replicas == (1, 2, 3)
    metadata = [request for request in harness.sent if isinstance(request, UpdateMetadata)]
    assert {request.partitions[0].offline_replicas for request in metadata} == {(3,)}
    assert {tuple(broker.broker_id for broker in request.live_brokers) for request in metadata} == {(1, 2)}
    assert len({id(request.partitions) for request in metadata}) == 1


def test_a_thousand_partitions_are_one_write_and_one_request_a_broker():
    harness = DecisionsHarness()
    harness.take_sent()
    effects = []
    perform = harness.perform
    harness.perform = lambda effect: (effects.append(effect), perform(effect))[1]
    harness.create("t", *[(1 + i % 3, 1 + (i + 1) % 3, 1 + (i + 2) % 3) for i in range(1000)])
    assert [type(effect).__name__ for effect in effects] == ["WriteStates", "Send"]
    assert len(harness.sent) == 6


def test_a_leader_was_faster(harness):
    """It has shrunk its ISR just when the controller elects: the new ISR counts."""

    def shrink():
        harness.tree.before_write = lambda: None
        harness.tree.change_isr(P, [1, 3])

    harness.tree.before_write = shrink
    harness.kill(1)
    assert harness.led(P) == (3, (3,))
    assert harness.context.leadership(P) == harness.tree.states[P]
    assert harness.tree.states[P].leader_epoch == 1


def test_a_leader_was_faster_again_and_again(harness):
    isrs = iter([(1, 3), (1,), (1, 2), (1, 2, 3), (1, 3)])

    def change():
        if isr := next(isrs, None):
            harness.tree.change_isr(P, isr)

    harness.tree.before_write = change
    harness.kill(2)
    assert harness.led(P) == (1, (1, 3))
    assert harness.context.leadership(P) == harness.tree.states[P]


def test_a_state_that_is_gone_is_refused_and_nothing_is_told(harness):
    harness.context.move_partition(P, ControllerPartitionState.OFFLINE)
    del harness.tree.states[P]
    results = harness.run(state_changes.elect(harness.context, [P], ElectionStrategy.OFFLINE))
    assert results.refused == {P: Refusal.STATE_GONE}
    assert harness.context.partition_state(P) is ControllerPartitionState.OFFLINE
    assert harness.take_sent() == []


def test_a_new_partition_that_has_a_state_already_is_taken_over():
    harness = DecisionsHarness()
    harness.tree.states[P] = Leadership(2, 6, (2, 3), 1, version=4)
    harness.create("t", (1, 2, 3))
    assert harness.tree.states[P] == Leadership(2, 7, (2, 3), 1, version=5)


def test_a_later_controller_ends_it(harness):
    def other():
        harness.tree.states[P] = harness.tree.states[P]._replace(version=8, controller_epoch=2)

    harness.tree.before_write = other
    before = harness.context.leadership(P)
    with pytest.raises(StaleControllerEpoch):
        harness.run(state_changes.elect(harness.context, [P], ElectionStrategy.OFFLINE))
    assert harness.context.leadership(P) == before
    assert harness.take_sent() == []


def test_an_illegal_step_changes_nothing(harness):
    fine, wrong = Replica("t", 0, 1), Replica("t", 0, 2)
    harness.context.move_replica(wrong, ControllerReplicaState.OFFLINE)
    harness.context.move_replica(wrong, ControllerReplicaState.DELETION_STARTED)
    for steps in (state_changes.move_replicas_offline, state_changes.move_replicas_online):
        with pytest.raises(IllegalTransition):
            harness.run(steps(harness.context, [fine, wrong]))
    assert harness.context.replica_state(fine) is ControllerReplicaState.ONLINE
    harness.context.add_topic("u", harness.tree.topics["t"])
    with pytest.raises(IllegalTransition):
        harness.run(state_changes.elect(harness.context, [P, ("u", 0)], ElectionStrategy.OFFLINE))
    assert harness.tree.state_writes == 1
    assert harness.take_sent() == []


def test_replicas_that_go_offline_are_stopped_and_leave_the_isr(harness):
    harness.run(state_changes.move_replicas_offline(harness.context, [Replica("t", 0, 2)]))
    assert harness.tree.states[P] == Leadership(1, 1, (1, 3), 1, version=1)
    assert harness.take_sent() == [
        ("lead", 1, [("t", 0, 1, 1, False)]),
        ("lead", 3, [("t", 0, 1, 1, False)]),
        *(("metadata", broker, [("t", 0, 1)]) for broker in (1, 2, 3)),
        ("stop", 2, [("t", 0, 1, False)]),
    ]


def test_replicas_of_one_partition_leave_in_one_write(harness):
    writes = harness.tree.state_writes
    harness.run(state_changes.move_replicas_offline(harness.context, [Replica("t", 0, 2), Replica("t", 0, 3)]))
    assert harness.led(P) == (1, (1,))
    assert harness.tree.state_writes == writes + 1
    harness.run(state_changes.move_replicas_offline(harness.context, [Replica("t", 0, 1)]))
    assert harness.led(P) == (NO_LEADER, (1,))
    assert harness.context.partition_state(P) is ControllerPartitionState.OFFLINE


def test_removed_replicas_are_told_to_delete(harness):
    harness.run(state_changes.remove_replicas(harness.context, [Replica("t", 0, 3)]))
    assert [one for one in harness.take_sent() if one[0] == "stop"] == [
        ("stop", 3, [("t", 0, 1, False)]),
        ("stop", 3, [("t", 0, 1, True)]),
    ]
    assert harness.context.replica_state(Replica("t", 0, 3)) is ControllerReplicaState.NON_EXISTENT
