"""What a change of state means: writes to the tree, requests to the brokers, and writes that were refused."""

import pytest
from controllerbed import Bed

from headrace.controller import decisions
from headrace.controller.context import Replica
from headrace.controller.decisions import Election
from headrace.controller.elections import NO_LEADER, Leadership, Refusal
from headrace.controller.partition_states import IllegalTransition, PartitionLife
from headrace.controller.replica_states import ReplicaLife
from headrace.controller.requests import LeaderAndIsr, UpdateMetadata
from headrace.protocol.errors import StaleControllerEpoch

P = ("t", 0)


@pytest.fixture
def bed():
    made = Bed()
    made.create("t", (1, 2, 3))
    made.take_sent()
    return made


def test_a_new_partition_is_written_and_told_to_its_replicas_and_to_all():
    bed = Bed([1, 2, 3, 4])
    bed.take_sent()
    bed.create("t", (1, 2))
    assert bed.tree.states[P] == Leadership(1, 0, (1, 2), 1, version=0)
    assert bed.context.leadership(P) == bed.tree.states[P]
    assert bed.take_sent() == [
        ("lead", 1, [("t", 0, 1, 0, True)]),
        ("lead", 2, [("t", 0, 1, 0, True)]),
        *(("metadata", broker, [("t", 0, 1)]) for broker in (1, 2, 3, 4)),
    ]


def test_requests_carry_what_a_broker_needs(bed):
    bed.kill(3)
    lead = next(request for request in bed.sent if isinstance(request, LeaderAndIsr))
    assert lead.controller_id == 1
    assert lead.topic_ids == {"t": bed.context.topic_id("t")}
    assert [broker.broker_id for broker in lead.live_leaders] == [1]
    assert lead.partitions[0].assignment.replicas == (1, 2, 3)
    metadata = [request for request in bed.sent if isinstance(request, UpdateMetadata)]
    assert {request.partitions[0].offline_replicas for request in metadata} == {(3,)}
    assert {tuple(broker.broker_id for broker in request.live_brokers) for request in metadata} == {(1, 2)}
    assert len({id(request.partitions) for request in metadata}) == 1


def test_a_thousand_partitions_are_one_write_and_one_request_a_broker():
    bed = Bed()
    bed.take_sent()
    effects = []
    perform = bed.perform
    bed.perform = lambda effect: (effects.append(effect), perform(effect))[1]
    bed.create("t", *[(1 + i % 3, 1 + (i + 1) % 3, 1 + (i + 2) % 3) for i in range(1000)])
    assert [type(effect).__name__ for effect in effects] == ["WriteStates", "Send"]
    assert len(bed.sent) == 6


def test_a_leader_was_faster(bed):
    """It has shrunk its ISR just when the controller elects: the new ISR counts."""

    def shrink():
        bed.tree.before_write = lambda: None
        bed.tree.change_isr(P, [1, 3])

    bed.tree.before_write = shrink
    bed.kill(1)
    assert bed.led(P) == (3, (3,))
    assert bed.context.leadership(P) == bed.tree.states[P]
    assert bed.tree.states[P].leader_epoch == 1


def test_a_leader_was_faster_again_and_again(bed):
    isrs = iter([(1, 3), (1,), (1, 2), (1, 2, 3), (1, 3)])

    def change():
        if isr := next(isrs, None):
            bed.tree.change_isr(P, isr)

    bed.tree.before_write = change
    bed.kill(2)
    assert bed.led(P) == (1, (1, 3))
    assert bed.context.leadership(P) == bed.tree.states[P]


def test_a_state_that_is_gone_is_refused_and_nothing_is_told(bed):
    bed.context.move_partition(P, PartitionLife.OFFLINE)
    del bed.tree.states[P]
    results = bed.run(decisions.elect(bed.context, [P], Election.OFFLINE))
    assert results.refused == {P: Refusal.STATE_GONE}
    assert bed.context.partition_state(P) is PartitionLife.OFFLINE
    assert bed.take_sent() == []


def test_a_new_partition_that_has_a_state_already_is_taken_over():
    bed = Bed()
    bed.tree.states[P] = Leadership(2, 6, (2, 3), 1, version=4)
    bed.create("t", (1, 2, 3))
    assert bed.tree.states[P] == Leadership(2, 7, (2, 3), 1, version=5)


def test_a_later_controller_ends_it(bed):
    def other():
        bed.tree.states[P] = bed.tree.states[P]._replace(version=8, controller_epoch=2)

    bed.tree.before_write = other
    before = bed.context.leadership(P)
    with pytest.raises(StaleControllerEpoch):
        bed.run(decisions.elect(bed.context, [P], Election.OFFLINE))
    assert bed.context.leadership(P) == before
    assert bed.take_sent() == []


def test_an_illegal_step_changes_nothing(bed):
    fine, wrong = Replica("t", 0, 1), Replica("t", 0, 2)
    bed.context.move_replica(wrong, ReplicaLife.OFFLINE)
    bed.context.move_replica(wrong, ReplicaLife.DELETION_STARTED)
    for steps in (decisions.replicas_offline, decisions.replicas_online):
        with pytest.raises(IllegalTransition):
            bed.run(steps(bed.context, [fine, wrong]))
    assert bed.context.replica_state(fine) is ReplicaLife.ONLINE
    bed.context.add_topic("u", bed.tree.topics["t"])
    with pytest.raises(IllegalTransition):
        bed.run(decisions.elect(bed.context, [P, ("u", 0)], Election.OFFLINE))
    assert bed.tree.state_writes == 1
    assert bed.take_sent() == []


def test_replicas_that_go_offline_are_stopped_and_leave_the_isr(bed):
    bed.run(decisions.replicas_offline(bed.context, [Replica("t", 0, 2)]))
    assert bed.tree.states[P] == Leadership(1, 1, (1, 3), 1, version=1)
    assert bed.take_sent() == [
        ("lead", 1, [("t", 0, 1, 1, False)]),
        ("lead", 3, [("t", 0, 1, 1, False)]),
        *(("metadata", broker, [("t", 0, 1)]) for broker in (1, 2, 3)),
        ("stop", 2, [("t", 0, 1, False)]),
    ]


def test_replicas_of_one_partition_leave_in_one_write(bed):
    writes = bed.tree.state_writes
    bed.run(decisions.replicas_offline(bed.context, [Replica("t", 0, 2), Replica("t", 0, 3)]))
    assert bed.led(P) == (1, (1,))
    assert bed.tree.state_writes == writes + 1
    bed.run(decisions.replicas_offline(bed.context, [Replica("t", 0, 1)]))
    assert bed.led(P) == (NO_LEADER, (1,))
    assert bed.context.partition_state(P) is PartitionLife.OFFLINE


def test_removed_replicas_are_told_to_delete(bed):
    bed.run(decisions.remove_replicas(bed.context, [Replica("t", 0, 3)]))
    assert [one for one in bed.take_sent() if one[0] == "stop"] == [
        ("stop", 3, [("t", 0, 1, False)]),
        ("stop", 3, [("t", 0, 1, True)]),
    ]
    assert bed.context.replica_state(Replica("t", 0, 3)) is ReplicaLife.NON_EXISTENT
