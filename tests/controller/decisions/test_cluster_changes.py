"""The decisions of the controller when brokers, disks, topics or settings change."""

import pytest
from decisions_harness import DecisionsHarness

from headrace.controller.decisions import cluster_changes
from headrace.controller.decisions.broker_requests import LeaderAndIsr, UpdateMetadata
from headrace.controller.decisions.context import Replica
from headrace.controller.decisions.leader_elections import NO_LEADER, ElectionStrategy, Leadership
from headrace.controller.decisions.partition_states import ControllerPartitionState
from headrace.controller.decisions.replica_states import ControllerReplicaState
from headrace.protocol.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidTopic,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)

P, Q = ("t", 0), ("t", 1)


@pytest.fixture
def harness():
    made = DecisionsHarness()
    made.create("t", (1, 2, 3), (2, 3, 1))
    made.take_sent()
    return made


def sent(harness, kind):
    return [one for one in harness.take_sent() if one[0] == kind]


# Brokers


def test_a_broker_dies(harness):
    harness.kill(1)
    assert harness.led(P) == (2, (2, 3))
    assert harness.led(Q) == (2, (2, 3))
    leads = sent(harness, "lead")
    # The election first: what nobody leads is more urgent than an ISR.
    assert leads[:2] == [("lead", broker, [("t", 0, 2, 1, False)]) for broker in (2, 3)]
    assert leads[2:] == [("lead", broker, [("t", 1, 2, 1, False)]) for broker in (2, 3)]
    assert harness.context.replica_state(Replica("t", 0, 1)) is ControllerReplicaState.OFFLINE


def test_all_die_and_any_of_those_in_sync_brings_the_partition_back(harness):
    harness.change_isr(P, (1, 2))
    harness.kill(1, 2)
    assert harness.led(P) == (NO_LEADER, (1, 2))
    assert harness.context.partition_state(P) is ControllerPartitionState.OFFLINE
    assert harness.led(Q) == (3, (3,))
    harness.start(2)
    assert harness.led(P) == (2, (2,))
    assert harness.context.partition_state(P) is ControllerPartitionState.ONLINE


def test_the_last_in_sync_is_waited_for(harness):
    harness.change_isr(P, (1,))
    harness.kill(1)
    assert harness.led(P) == (NO_LEADER, (1,))
    harness.kill(2)
    harness.start(2)
    assert harness.led(P) == (NO_LEADER, (1,))
    harness.start(1)
    assert harness.led(P) == (1, (1,))


def test_unless_the_topic_allows_another(harness):
    harness.change_isr(P, (1,))
    harness.kill(1)
    harness.context.unclean_topics["t"] = True
    harness.run(cluster_changes.on_unclean_election_enabled(harness.context, "u"))
    assert harness.led(P) == (NO_LEADER, (1,))
    harness.run(cluster_changes.on_unclean_election_enabled(harness.context, "t"))
    assert harness.led(P) == (2, (2,))
    assert harness.tree.states[P].is_recovering


def test_unclean_by_default_and_not_for_a_topic(harness):
    harness.context.is_unclean_by_default = True
    harness.context.unclean_topics["t"] = False
    harness.change_isr(P, (1,))
    harness.kill(1)
    harness.run(cluster_changes.on_unclean_election_enabled(harness.context))
    assert harness.led(P) == (NO_LEADER, (1,))


def test_a_broker_that_has_nothing_dies_and_the_others_hear_of_it(harness):
    harness.start(4)
    harness.take_sent()
    harness.kill(4)
    assert harness.take_sent() == [("metadata", broker, []) for broker in (1, 2, 3)]


def test_a_broker_comes_back(harness):
    harness.kill(1)
    harness.take_sent()
    harness.start(1)
    assert harness.take_sent() == [
        ("metadata", 2, []),
        ("metadata", 3, []),
        ("metadata", 1, [("t", 0, 2), ("t", 1, 2)]),
        ("lead", 1, [("t", 0, 2, 1, False), ("t", 1, 2, 1, False)]),
        *(("metadata", broker, [("t", 0, 2), ("t", 1, 2)]) for broker in (1, 2, 3)),
    ]
    assert harness.led(P) == (2, (2, 3))


def test_a_broker_changes_its_rack(harness):
    harness.see_brokers()
    assert harness.take_sent() == [], "nothing is new"
    harness.racks[1] = "a"
    harness.see_brokers()
    assert {request.live_brokers[0].rack for request in harness.sent} == {"a"}
    assert harness.take_sent() == [("metadata", broker, []) for broker in (1, 2, 3)]


def test_a_broker_is_restarted_before_anyone_notices(harness):
    harness.start(1)
    assert harness.led(P) == (2, (2, 3)), "what it had not written to its disk may be lost"
    assert harness.context.replica_state(Replica("t", 0, 1)) is ControllerReplicaState.ONLINE


def test_one_goes_and_another_comes(harness):
    harness.up.discard(1)
    harness.start(4)
    assert harness.context.broker_ids == [2, 3, 4]
    assert harness.led(P) == (2, (2, 3))


# Disks


def test_a_disk_fails(harness):
    harness.run(cluster_changes.on_log_dir_failure(harness.context, 1))
    assert sent(harness, "lead") == [("lead", 1, [("t", 0, 1, 0, False), ("t", 1, 2, 0, False)])]
    harness.run(cluster_changes.on_leader_and_isr_response(harness.context, 1, failed=[P], working=[Q]))
    assert harness.led(P) == (2, (2, 3))
    assert harness.led(Q) == (2, (2, 3, 1))
    metadata = [one for one in harness.sent if isinstance(one, UpdateMetadata)]
    assert metadata[-1].partitions[0].offline_replicas == (1,)
    harness.take_sent()
    harness.run(cluster_changes.on_leader_and_isr_response(harness.context, 1, failed=[P, ("gone", 0)], working=[]))
    assert harness.take_sent() == [], "that is known"


def test_a_restart_makes_disks_work(harness):
    harness.run(cluster_changes.on_leader_and_isr_response(harness.context, 1, failed=[P], working=[]))
    harness.kill(1)
    harness.start(1)
    assert harness.context.is_online(1, P)


# Topics


def test_a_topic_whose_first_broker_is_dead(harness):
    harness.kill(1)
    harness.create("u", (1, 2), (1,))
    assert harness.led(("u", 0)) == (2, (2,))
    assert harness.context.partition_state(("u", 1)) is ControllerPartitionState.NEW
    harness.start(1)
    assert harness.led(("u", 1)) == (1, (1,))


def test_a_topic_grows(harness):
    harness.create("t", (1, 2, 3), (2, 3, 1), (3, 1))
    assert harness.led(("t", 2)) == (3, (3, 1))
    assert harness.tree.states[P].leader_epoch == 0


def test_a_topic_vanishes(harness):
    harness.run(cluster_changes.update_topics(harness.context, {}, removed=["t"]))
    assert not harness.context.has_topic("t")
    harness.kill(1)


# Controlled shutdown


def test_a_broker_stops(harness):
    harness.create("alone", (1,))
    harness.take_sent()
    assert harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1)) == []
    assert harness.led(P) == (2, (2, 3))
    assert harness.led(Q) == (2, (2, 3))
    assert harness.led(("alone", 0)) == (1, (1,)), "nobody else has it"
    assert sent(harness, "stop") == [("stop", 1, [("t", 0, 1, False), ("t", 1, 1, False)])]
    writes = harness.tree.state_writes
    harness.kill(1)
    assert harness.tree.state_writes == writes + 1, "only that of which it was the only replica"


def test_a_broker_that_is_the_only_one_in_sync_is_told_what_it_still_leads(harness):
    harness.change_isr(P, (1,))
    assert harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1)) == [P]
    harness.tree.change_isr(P, (1, 3))
    assert harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1)) == [], (
        "the tree is asked before it is refused"
    )
    assert harness.led(P) == (3, (3,))


def test_leaders_do_not_go_to_a_broker_that_stops_too(harness):
    harness.run(cluster_changes.on_controlled_shutdown(harness.context, 2))
    harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1))
    assert harness.led(P) == (3, (3,))
    assert harness.run(cluster_changes.on_controlled_shutdown(harness.context, 3)) == [P, Q]


def test_a_leader_that_is_stopping_leads_until_it_is_gone(harness):
    harness.context.unclean_topics["t"] = True
    harness.change_isr(P, (1,))
    harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1))
    harness.start(3)
    assert harness.led(P) == (1, (1,))
    assert harness.context.partition_state(P) is ControllerPartitionState.ONLINE
    answers = harness.run(cluster_changes.elect_leaders(harness.context, [P], ElectionStrategy.UNCLEAN))
    assert isinstance(answers[P], ElectionNotNeeded)
    harness.kill(1)
    assert harness.led(P) == (2, (2,))


def test_who_may_not_stop(harness):
    with pytest.raises(BrokerNotAvailable):
        harness.run(cluster_changes.on_controlled_shutdown(harness.context, 9))
    with pytest.raises(StaleBrokerEpoch):
        harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1, broker_epoch=0))
    assert harness.context.shutting_down_brokers == frozenset()
    assert harness.run(cluster_changes.on_controlled_shutdown(harness.context, 1, broker_epoch=1)) == []


# ElectionResults by hand


def test_preferred_leaders(harness):
    harness.kill(1)
    harness.start(1)
    harness.change_isr(P, (2, 3, 1))
    harness.create("u", (1,), (1, 2))
    harness.delete("u")
    asked = [P, Q, ("u", 0), ("none", 0)]
    answers = harness.run(cluster_changes.elect_leaders(harness.context, asked, ElectionStrategy.PREFERRED))
    assert harness.led(P) == (1, (2, 3, 1))
    assert {partition: type(answer) for partition, answer in answers.items()} == {
        P: type(None),
        Q: ElectionNotNeeded,
        ("u", 0): InvalidTopic,
        ("none", 0): UnknownTopicOrPartition,
    }


def test_a_preferred_leader_that_is_not_in_sync(harness):
    harness.kill(1)
    harness.start(1)
    answers = harness.run(cluster_changes.elect_leaders(harness.context, [P], ElectionStrategy.PREFERRED))
    assert isinstance(answers[P], PreferredLeaderNotAvailable)
    harness.tree.change_isr(P, (2, 3, 1))
    assert harness.run(cluster_changes.elect_leaders(harness.context, [P], ElectionStrategy.PREFERRED)) == {P: None}


def test_leaders_at_any_price(harness):
    harness.change_isr(P, (1,))
    harness.kill(1)
    answers = harness.run(cluster_changes.elect_leaders(harness.context, [P, Q], ElectionStrategy.UNCLEAN))
    assert answers[P] is None
    assert isinstance(answers[Q], ElectionNotNeeded)
    assert harness.led(P) == (2, (2,))
    harness.kill(2, 3)
    answers = harness.run(cluster_changes.elect_leaders(harness.context, [P], ElectionStrategy.UNCLEAN))
    assert isinstance(answers[P], EligibleLeadersNotAvailable)


def test_leaders_go_back_by_themselves(harness):
    harness.kill(1)
    harness.start(1)
    harness.change_isr(P, (2, 3, 1))
    harness.run(cluster_changes.rebalance_leaders(harness.context, 100))
    assert harness.led(P)[0] == 2
    harness.run(cluster_changes.rebalance_leaders(harness.context, 10))
    assert harness.led(P)[0] == 1


# Taking over


def test_a_new_controller_tells_everything(harness):
    harness.take_sent()
    harness.fail_over(2)
    requests = list(harness.sent)
    assert all(request.controller_id == 2 and request.controller_epoch == 2 for request in requests)
    assert [request.broker_id for request in requests[:3]] == [1, 2, 3]
    # A broker that has just started serves clients from then on. Without the topics it would tell them that the topics
    # are being created.
    for request in requests[:3]:
        assert isinstance(request, UpdateMetadata)
        assert {one.broker_id for one in request.live_brokers} == {1, 2, 3}
        assert {(one.topic, one.partition) for one in request.partitions} == {P, Q}
    leads = [request for request in requests if isinstance(request, LeaderAndIsr)]
    assert {request.broker_id: len(request.partitions) for request in leads} == {1: 2, 2: 2, 3: 2}
    assert harness.tree.states[P] == Leadership(1, 0, (1, 2, 3), 1, version=0), "nothing had to change"


def test_a_new_controller_finds_that_a_broker_died(harness):
    harness.up.discard(1)
    harness.fail_over(2)
    assert harness.led(P) == (2, (2, 3))
    assert harness.led(Q) == (2, (2, 3))
    assert harness.tree.states[P].controller_epoch == 2


def test_a_new_controller_finds_a_topic_without_leaders(harness):
    harness.tree.states.clear()
    harness.fail_over(2)
    assert harness.led(P) == (1, (1, 2, 3))
