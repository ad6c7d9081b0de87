"""What the controller does when something happens."""

import pytest
from controllerbed import Bed

from headrace.controller import duties
from headrace.controller.context import Replica
from headrace.controller.decisions import Election
from headrace.controller.elections import NO_LEADER, Leadership
from headrace.controller.partition_states import PartitionLife
from headrace.controller.replica_states import ReplicaLife
from headrace.controller.requests import LeaderAndIsr, UpdateMetadata
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
def bed():
    made = Bed()
    made.create("t", (1, 2, 3), (2, 3, 1))
    made.take_sent()
    return made


def sent(bed, kind):
    return [one for one in bed.take_sent() if one[0] == kind]


# Brokers


def test_a_broker_dies(bed):
    bed.kill(1)
    assert bed.led(P) == (2, (2, 3))
    assert bed.led(Q) == (2, (2, 3))
    leads = sent(bed, "lead")
    # The election first: what nobody leads is more urgent than an ISR.
    assert leads[:2] == [("lead", broker, [("t", 0, 2, 1, False)]) for broker in (2, 3)]
    assert leads[2:] == [("lead", broker, [("t", 1, 2, 1, False)]) for broker in (2, 3)]
    assert bed.context.replica_state(Replica("t", 0, 1)) is ReplicaLife.OFFLINE


def test_all_die_and_any_of_those_in_sync_brings_the_partition_back(bed):
    bed.change_isr(P, (1, 2))
    bed.kill(1, 2)
    assert bed.led(P) == (NO_LEADER, (1, 2))
    assert bed.context.partition_state(P) is PartitionLife.OFFLINE
    assert bed.led(Q) == (3, (3,))
    bed.start(2)
    assert bed.led(P) == (2, (2,))
    assert bed.context.partition_state(P) is PartitionLife.ONLINE


def test_the_last_in_sync_is_waited_for(bed):
    bed.change_isr(P, (1,))
    bed.kill(1)
    assert bed.led(P) == (NO_LEADER, (1,))
    bed.kill(2)
    bed.start(2)
    assert bed.led(P) == (NO_LEADER, (1,))
    bed.start(1)
    assert bed.led(P) == (1, (1,))


def test_unless_the_topic_allows_another(bed):
    bed.change_isr(P, (1,))
    bed.kill(1)
    bed.context.unclean_topics["t"] = True
    bed.run(duties.unclean_allowed(bed.context, "u"))
    assert bed.led(P) == (NO_LEADER, (1,))
    bed.run(duties.unclean_allowed(bed.context, "t"))
    assert bed.led(P) == (2, (2,))
    assert bed.tree.states[P].is_recovering


def test_unclean_by_default_and_not_for_a_topic(bed):
    bed.context.is_unclean_by_default = True
    bed.context.unclean_topics["t"] = False
    bed.change_isr(P, (1,))
    bed.kill(1)
    bed.run(duties.unclean_allowed(bed.context))
    assert bed.led(P) == (NO_LEADER, (1,))


def test_a_broker_that_has_nothing_dies_and_the_others_hear_of_it(bed):
    bed.start(4)
    bed.take_sent()
    bed.kill(4)
    assert bed.take_sent() == [("metadata", broker, []) for broker in (1, 2, 3)]


def test_a_broker_comes_back(bed):
    bed.kill(1)
    bed.take_sent()
    bed.start(1)
    assert bed.take_sent() == [
        ("metadata", 2, []),
        ("metadata", 3, []),
        ("metadata", 1, [("t", 0, 2), ("t", 1, 2)]),
        ("lead", 1, [("t", 0, 2, 1, False), ("t", 1, 2, 1, False)]),
        *(("metadata", broker, [("t", 0, 2), ("t", 1, 2)]) for broker in (1, 2, 3)),
    ]
    assert bed.led(P) == (2, (2, 3))


def test_a_broker_changes_its_rack(bed):
    bed.see_brokers()
    assert bed.take_sent() == [], "nothing is new"
    bed.racks[1] = "a"
    bed.see_brokers()
    assert {request.live_brokers[0].rack for request in bed.sent} == {"a"}
    assert bed.take_sent() == [("metadata", broker, []) for broker in (1, 2, 3)]


def test_a_broker_is_restarted_before_anyone_notices(bed):
    bed.start(1)
    assert bed.led(P) == (2, (2, 3)), "what it had not written to its disk may be lost"
    assert bed.context.replica_state(Replica("t", 0, 1)) is ReplicaLife.ONLINE


def test_one_goes_and_another_comes(bed):
    bed.up.discard(1)
    bed.start(4)
    assert bed.context.broker_ids == [2, 3, 4]
    assert bed.led(P) == (2, (2, 3))


# Disks


def test_a_disk_fails(bed):
    bed.run(duties.disks_failed(bed.context, 1))
    assert sent(bed, "lead") == [("lead", 1, [("t", 0, 1, 0, False), ("t", 1, 2, 0, False)])]
    bed.run(duties.leaders_answered(bed.context, 1, lost=[P], fine=[Q]))
    assert bed.led(P) == (2, (2, 3))
    assert bed.led(Q) == (2, (2, 3, 1))
    metadata = [one for one in bed.sent if isinstance(one, UpdateMetadata)]
    assert metadata[-1].partitions[0].offline_replicas == (1,)
    bed.take_sent()
    bed.run(duties.leaders_answered(bed.context, 1, lost=[P, ("gone", 0)], fine=[]))
    assert bed.take_sent() == [], "that is known"


def test_a_restart_makes_disks_work(bed):
    bed.run(duties.leaders_answered(bed.context, 1, lost=[P], fine=[]))
    bed.kill(1)
    bed.start(1)
    assert bed.context.is_online(1, P)


# Topics


def test_a_topic_whose_first_broker_is_dead(bed):
    bed.kill(1)
    bed.create("u", (1, 2), (1,))
    assert bed.led(("u", 0)) == (2, (2,))
    assert bed.context.partition_state(("u", 1)) is PartitionLife.NEW
    bed.start(1)
    assert bed.led(("u", 1)) == (1, (1,))


def test_a_topic_grows(bed):
    bed.create("t", (1, 2, 3), (2, 3, 1), (3, 1))
    assert bed.led(("t", 2)) == (3, (3, 1))
    assert bed.tree.states[P].leader_epoch == 0


def test_a_topic_vanishes(bed):
    bed.run(duties.topics_seen(bed.context, {}, gone=["t"]))
    assert not bed.context.has_topic("t")
    bed.kill(1)


# Controlled shutdown


def test_a_broker_stops(bed):
    bed.create("alone", (1,))
    bed.take_sent()
    assert bed.run(duties.broker_stops(bed.context, 1)) == []
    assert bed.led(P) == (2, (2, 3))
    assert bed.led(Q) == (2, (2, 3))
    assert bed.led(("alone", 0)) == (1, (1,)), "nobody else has it"
    assert sent(bed, "stop") == [("stop", 1, [("t", 0, 1, False), ("t", 1, 1, False)])]
    writes = bed.tree.state_writes
    bed.kill(1)
    assert bed.tree.state_writes == writes + 1, "only that of which it was the only replica"


def test_a_broker_that_is_the_only_one_in_sync_is_told_what_it_still_leads(bed):
    bed.change_isr(P, (1,))
    assert bed.run(duties.broker_stops(bed.context, 1)) == [P]
    bed.tree.change_isr(P, (1, 3))
    assert bed.run(duties.broker_stops(bed.context, 1)) == [], "the tree is asked before it is refused"
    assert bed.led(P) == (3, (3,))


def test_leaders_do_not_go_to_a_broker_that_stops_too(bed):
    bed.run(duties.broker_stops(bed.context, 2))
    bed.run(duties.broker_stops(bed.context, 1))
    assert bed.led(P) == (3, (3,))
    assert bed.run(duties.broker_stops(bed.context, 3)) == [P, Q]


def test_a_leader_that_is_stopping_leads_until_it_is_gone(bed):
    bed.context.unclean_topics["t"] = True
    bed.change_isr(P, (1,))
    bed.run(duties.broker_stops(bed.context, 1))
    bed.start(3)
    assert bed.led(P) == (1, (1,))
    assert bed.context.partition_state(P) is PartitionLife.ONLINE
    answers = bed.run(duties.elect_leaders(bed.context, [P], Election.UNCLEAN))
    assert isinstance(answers[P], ElectionNotNeeded)
    bed.kill(1)
    assert bed.led(P) == (2, (2,))


def test_who_may_not_stop(bed):
    with pytest.raises(BrokerNotAvailable):
        bed.run(duties.broker_stops(bed.context, 9))
    with pytest.raises(StaleBrokerEpoch):
        bed.run(duties.broker_stops(bed.context, 1, broker_epoch=0))
    assert bed.context.stopping_brokers == frozenset()
    assert bed.run(duties.broker_stops(bed.context, 1, broker_epoch=1)) == []


# Elections by hand


def test_preferred_leaders(bed):
    bed.kill(1)
    bed.start(1)
    bed.change_isr(P, (2, 3, 1))
    bed.create("u", (1,), (1, 2))
    bed.delete("u")
    asked = [P, Q, ("u", 0), ("none", 0)]
    answers = bed.run(duties.elect_leaders(bed.context, asked, Election.PREFERRED))
    assert bed.led(P) == (1, (2, 3, 1))
    assert {partition: type(answer) for partition, answer in answers.items()} == {
        P: type(None),
        Q: ElectionNotNeeded,
        ("u", 0): InvalidTopic,
        ("none", 0): UnknownTopicOrPartition,
    }


def test_a_preferred_leader_that_is_not_in_sync(bed):
    bed.kill(1)
    bed.start(1)
    answers = bed.run(duties.elect_leaders(bed.context, [P], Election.PREFERRED))
    assert isinstance(answers[P], PreferredLeaderNotAvailable)
    bed.tree.change_isr(P, (2, 3, 1))
    assert bed.run(duties.elect_leaders(bed.context, [P], Election.PREFERRED)) == {P: None}


def test_leaders_at_any_price(bed):
    bed.change_isr(P, (1,))
    bed.kill(1)
    answers = bed.run(duties.elect_leaders(bed.context, [P, Q], Election.UNCLEAN))
    assert answers[P] is None
    assert isinstance(answers[Q], ElectionNotNeeded)
    assert bed.led(P) == (2, (2,))
    bed.kill(2, 3)
    answers = bed.run(duties.elect_leaders(bed.context, [P], Election.UNCLEAN))
    assert isinstance(answers[P], EligibleLeadersNotAvailable)


def test_leaders_go_back_by_themselves(bed):
    bed.kill(1)
    bed.start(1)
    bed.change_isr(P, (2, 3, 1))
    bed.run(duties.rebalance_leaders(bed.context, 100))
    assert bed.led(P)[0] == 2
    bed.run(duties.rebalance_leaders(bed.context, 10))
    assert bed.led(P)[0] == 1


# Taking over


def test_a_new_controller_tells_everything(bed):
    bed.take_sent()
    bed.fail_over(2)
    requests = list(bed.sent)
    assert all(request.controller_id == 2 and request.controller_epoch == 2 for request in requests)
    assert [request.broker_id for request in requests[:3]] == [1, 2, 3]
    assert all(isinstance(request, UpdateMetadata) and not request.partitions for request in requests[:3])
    leads = [request for request in requests if isinstance(request, LeaderAndIsr)]
    assert {request.broker_id: len(request.partitions) for request in leads} == {1: 2, 2: 2, 3: 2}
    assert bed.tree.states[P] == Leadership(1, 0, (1, 2, 3), 1, version=0), "nothing had to change"


def test_a_new_controller_finds_that_a_broker_died(bed):
    bed.up.discard(1)
    bed.fail_over(2)
    assert bed.led(P) == (2, (2, 3))
    assert bed.led(Q) == (2, (2, 3))
    assert bed.tree.states[P].controller_epoch == 2


def test_a_new_controller_finds_a_topic_without_leaders(bed):
    bed.tree.states.clear()
    bed.fail_over(2)
    assert bed.led(P) == (1, (1, 2, 3))
