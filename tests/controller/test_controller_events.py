"""The active controller processes events, with a tree in this process and brokers that respond."""

import asyncio

import pytest
from controller_harness import ControllerHarness

from headrace.controller.decisions.broker_requests import LEADER_DURING_DELETE, UpdateMetadata
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.decisions.reassignments import Assignment
from headrace.coordination.paths import (
    CONTROLLER,
    ISR_CHANGES,
    LOG_DIR_EVENT_PREFIX,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    broker_path,
    delete_topic_path,
    partitions_path,
    topic_config_path,
    topic_path,
)
from headrace.coordination.znodes import (
    BrokerRegistration,
    Endpoint,
    EntityConfig,
    LogDirFailure,
    PartitionSet,
    Reassignment,
    TopicAssignment,
    random_uuid,
)
from headrace.protocol.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)


@pytest.fixture
async def harness():
    harness = await ControllerHarness().start(1, 2, 3)
    yield harness
    await harness.stop()


# Topics


async def test_a_new_topic_gets_leaders_and_everyone_hears_of_it(harness):
    harness.channel.take()
    await harness.create_topic("t", (1, 2, 3), (2, 3, 1))
    assert await harness.state("t", 0) == (1, 0, (1, 2, 3))
    assert await harness.state("t", 1) == (2, 0, (2, 3, 1))
    sent = list(harness.channel.sent)
    told = harness.channel.take_leaders()
    assert told[3, "t", 1] == (2, 0, (2, 3, 1), True)
    assert len(told) == 6
    metadata = [one for one in sent if isinstance(one, UpdateMetadata)]
    assert {one.broker_id for one in metadata} == {1, 2, 3}
    assert {one.topic_ids["t"] for one in metadata} == {(await harness.assignment("t")).topic_id}


async def test_many_topics_at_once(harness):
    for number in range(20):
        assigned = TopicAssignment(random_uuid(), {0: (1, 2), 1: (2, 3)})
        await harness.hand.create(topic_path(f"t{number}"), assigned.to_json())
    await harness.settle()
    assert [await harness.state(f"t{number}", 1) for number in range(20)] == [(2, 0, (2, 3))] * 20


async def test_a_topic_grows(harness):
    await harness.create_topic("t", (1, 2))
    harness.channel.take()
    await harness.grow("t", (3, 1), (2, 3))
    assert await harness.state("t", 1) == (3, 0, (3, 1))
    assert {key[1:] for key in harness.channel.take_leaders()} == {("t", 1), ("t", 2)}
    await harness.grow("t", (1, 2))
    assert await harness.state("t", 3) == (1, 0, (1, 2))


async def test_a_topic_is_deleted_when_all_replicas_are(harness):
    await harness.create_topic("t", (1, 2), (2, 3))
    await harness.create_topic("other", (1, 2))
    harness.silent.add(3)
    harness.channel.take()
    await harness.request_deletion("t")
    sent = list(harness.channel.sent)
    assert harness.channel.take_deletes() == {(1, "t", 0), (2, "t", 0), (2, "t", 1), (3, "t", 1)}
    metadata = [one for request in sent if isinstance(request, UpdateMetadata) for one in request.partitions]
    assert {one.leader for one in metadata} == {LEADER_DURING_DELETE}
    assert await harness.exists(topic_path("t"))
    # The one that has not answered dies and comes back: it is told again.
    harness.silent.clear()
    await harness.stop(3)
    assert await harness.exists(delete_topic_path("t"))
    await harness.start(3)
    for path in (topic_path("t"), delete_topic_path("t"), topic_config_path("t")):
        assert not await harness.exists(path)
    assert await harness.state("other") == (1, 0, (1, 2))
    # The name is free.
    await harness.create_topic("t", (3,))
    assert await harness.state("t") == (3, 0, (3,))


async def test_a_topic_with_strange_znodes_below_is_deleted_with_them(harness):
    await harness.create_topic("t", (1,))
    await harness.hand.create(f"{partitions_path('t')}/0/strange")
    await harness.hand.create(f"{partitions_path('t')}/7")
    await harness.request_deletion("t")
    assert not await harness.exists(topic_path("t"))


async def test_a_request_to_delete_a_missing_topic_is_removed(harness):
    await harness.request_deletion("nothing")
    assert not await harness.exists(delete_topic_path("nothing"))


async def test_a_topic_is_deleted_before_the_controller_knows_it(harness):
    """The controller is busy with an earlier deletion while the topic and the request for its deletion come."""
    await harness.hand.create(delete_topic_path("before"))
    assigned = TopicAssignment(random_uuid(), {0: (1,)})
    await harness.hand.create(topic_path("t"), assigned.to_json())
    await harness.hand.create(delete_topic_path("t"))
    await harness.settle()
    assert not await harness.exists(topic_path("t"))
    assert not await harness.exists(delete_topic_path("t"))


async def test_deletion_can_be_disabled():
    harness = await ControllerHarness(delete_topic_enable=False).start(1)
    await harness.create_topic("t", (1,))
    await harness.request_deletion("t")
    assert await harness.exists(topic_path("t"))
    assert not await harness.exists(delete_topic_path("t"))
    await harness.stop()


async def test_deletion_goes_on_with_the_next_controller(harness):
    await harness.create_topic("t", (1, 2))
    harness.silent.add(2)
    await harness.request_deletion("t")
    assert await harness.exists(topic_path("t"))
    harness.silent.clear()
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert not await harness.exists(topic_path("t"))


async def test_a_topic_removed_and_made_again_by_hand_is_another_topic(harness):
    await harness.create_topic("t", (1, 2))
    for path in (f"{partitions_path('t')}/0/state", f"{partitions_path('t')}/0", partitions_path("t"), topic_path("t")):
        await harness.hand.delete(path)
    assigned = TopicAssignment(random_uuid(), {0: (3,)})
    await harness.hand.create(topic_path("t"), assigned.to_json())
    await harness.settle()
    assert await harness.state("t") == (3, 0, (3,))
    assert harness.controller.metrics.global_partition_count == 1


async def test_a_topic_that_cannot_be_read_stops_no_other(harness):
    await harness.hand.create(topic_path("bad"), b"{")
    await harness.create_topic("good", (1,))
    assert await harness.state("good") == (1, 0, (1,))
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert harness.controller.metrics.global_topic_count == 1


# Brokers


async def test_a_broker_dies_and_returns(harness):
    await harness.create_topic("t", (2, 1, 3), (3, 2))
    harness.channel.take()
    await harness.stop(2)
    assert await harness.state("t", 0) == (1, 1, (1, 3))
    assert await harness.state("t", 1) == (3, 1, (3,))
    assert 2 not in harness.channel.brokers
    epoch = harness.controller.epoch
    harness.channel.take()
    await harness.start(2)
    told = harness.channel.take_leaders()
    assert told[2, "t", 0][:3] == (1, 1, (1, 3))
    assert told[2, "t", 1][:3] == (3, 1, (3,))
    assert harness.controller.epoch == epoch


async def test_a_broker_that_is_back_before_its_death_was_noticed_counts_as_restarted(harness):
    await harness.create_topic("t", (2, 1))
    member = harness.members[2]
    before = harness.channel.brokers[2].epoch
    await member.coordination.delete(broker_path(2))
    await member.register()
    await harness.settle()
    assert harness.channel.brokers[2].epoch > before
    assert await harness.state("t") == (1, 1, (1,))


async def test_a_new_address_is_told(harness):
    harness.channel.take()
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 1)
    await harness.members[2].coordination.set(broker_path(2), BrokerRegistration((endpoint,), 0).to_json())
    await harness.settle()
    (told,) = [one for one in harness.channel.take(UpdateMetadata) if one.broker_id == 3]
    assert {one.broker_id: one.registration.endpoints[0].host for one in told.live_brokers}[2] == "elsewhere"
    assert harness.channel.brokers[2].registration.endpoints == (endpoint,)
    assert harness.controller.metrics.event_times["BrokerModifications"].count == 1


async def test_a_broker_leaves_in_order(harness):
    await harness.create_topic("t", (1, 2, 3), (2, 3), (3,))
    assert await harness.controller.controlled_shutdown(2, -1) == []
    assert await harness.state("t", 1) == (3, 1, (3,))
    assert (await harness.state("t", 0))[2] == (1, 3)
    with pytest.raises(BrokerNotAvailable):
        await harness.controller.controlled_shutdown(9, -1)
    with pytest.raises(StaleBrokerEpoch):
        await harness.controller.controlled_shutdown(3, 0)


async def test_a_disk_fails_and_its_replicas_lead_no_more(harness):
    await harness.create_topic("t", (1, 2), (1, 3))
    harness.lost[1] = {("t", 0)}
    await harness.hand.create(LOG_DIR_EVENT_PREFIX, LogDirFailure(1).to_json(), sequence=True)
    await harness.settle()
    assert await harness.state("t", 0) == (2, 1, (2,))
    assert (await harness.state("t", 1))[0] == 1
    assert await harness.hand.children(LOG_DIR_EVENTS) == []


# Leaders


async def test_an_isr_that_changed_is_told_and_its_notification_goes(harness):
    await harness.create_topic("t", (1, 2, 3))
    harness.channel.take()
    await harness.change_isr("t", 0, (1, 3))
    told = harness.channel.take(UpdateMetadata)
    assert {one.broker_id for one in told} == {1, 2, 3}
    assert told[0].partitions[0].leadership.isr == (1, 3)
    assert await harness.hand.children(ISR_CHANGES) == []


async def test_an_isr_that_changed_unnoticed_is_not_overwritten(harness):
    await harness.create_topic("t", (1, 2, 3))
    await harness.change_isr("t", 0, (1, 3), is_told=False)
    await harness.stop(1)
    assert await harness.state("t") == (3, 1, (3,))


async def test_notifications_from_before_are_cleared_by_a_new_controller(harness):
    await harness.create_topic("t", (1, 2, 3))
    for member in harness.members.values():
        await member.controller.stop()
    await harness.change_isr("t", 0, (1, 3))
    assert await harness.hand.children(ISR_CHANGES) != []
    await harness.stop()
    await harness.start(1, 3)
    assert await harness.hand.children(ISR_CHANGES) == []
    assert await harness.state("t") == (1, 1, (1,))  # 1 had gone and come unseen: it leads in a new epoch


async def test_preferred_leaders_are_elected_by_znode(harness):
    await harness.create_topic("t", (1, 2), (2, 1))
    await harness.stop(2)
    await harness.start(2)
    await harness.change_isr("t", 1, (1, 2))
    content = PartitionSet.of([("t", 0), ("t", 1), ("unknown", 0)]).to_json()
    await harness.hand.create(PREFERRED_REPLICA_ELECTION, content)
    await harness.settle()
    assert (await harness.state("t", 1))[0] == 2
    assert not await harness.exists(PREFERRED_REPLICA_ELECTION)
    # And once more; what cannot be read goes.
    await harness.hand.create(PREFERRED_REPLICA_ELECTION, b"[]")
    await harness.settle()
    assert not await harness.exists(PREFERRED_REPLICA_ELECTION)


async def test_leaders_are_elected_when_asked(harness):
    await harness.create_topic("t", (1, 2), (2, 1), (2, 3))
    await harness.stop(2)
    await harness.start(2)
    await harness.change_isr("t", 1, (1, 2))
    controller = harness.controller
    answers = await controller.elect_leaders([("t", 0), ("t", 2), ("no", 0)], ElectionStrategy.PREFERRED)
    assert {one: type(error) for one, error in answers.items()} == {
        ("t", 0): ElectionNotNeeded,
        ("t", 2): PreferredLeaderNotAvailable,
        ("no", 0): UnknownTopicOrPartition,
    }
    answers = await controller.elect_leaders(None, ElectionStrategy.PREFERRED)
    assert answers[("t", 1)] is None
    assert set(answers) == {("t", 1), ("t", 2)}
    assert (await harness.state("t", 1))[0] == 2


async def test_leaders_go_back_by_themselves():
    harness = await ControllerHarness(auto_leader_rebalance_enable=True).start(1, 2)
    await harness.create_topic("t", (2, 1))
    await harness.stop(2)
    await harness.start(2)
    await harness.change_isr("t", 0, (1, 2))
    for passed_ms, leader in ((4_999, 1), (1, 2)):
        harness.clock.advance(passed_ms)
        harness.timer.advance()
        await harness.settle()
        assert (await harness.state("t"))[0] == leader
    assert len(harness.timer) == 1
    harness.clock.advance(300_000)
    harness.timer.advance()
    await harness.settle()
    assert harness.controller.metrics.event_times["AutoPreferredReplicaLeaderElection"].count == 2
    await harness.stop()
    assert len(harness.timer) == 0


async def test_an_unclean_leader_is_elected_when_the_topic_allows_it(harness):
    await harness.create_topic("t", (2, 3))
    await harness.change_isr("t", 0, (2,))
    await harness.stop(2)
    assert (await harness.state("t"))[0] == -1
    content = EntityConfig({"unclean.leader.election.enable": "true"}).to_json()
    await harness.hand.set(topic_config_path("t"), content)
    harness.controller.unclean_election_changed("t")
    await harness.settle()
    assert (await harness.state("t"))[0] == 3
    # A new controller reads it.
    await harness.create_topic("u", (1, 3), **{"unclean.leader.election.enable": "true"})
    await harness.change_isr("u", 0, (1,))
    await harness.stop(1)
    assert (await harness.state("u"))[0] == 3


async def test_an_unclean_leader_is_elected_when_the_brokers_allow_it():
    allowed = []
    harness = await ControllerHarness(is_unclean_by_default=lambda: bool(allowed)).start(1, 2, 3)
    await harness.create_topic("t", (2, 3))
    await harness.create_topic("never", (2, 3), **{"unclean.leader.election.enable": "false"})
    for topic in ("t", "never"):
        await harness.change_isr(topic, 0, (2,))
    await harness.stop(2)
    allowed.append(True)
    for member in harness.members.values():
        member.controller.unclean_election_changed()
    await harness.settle()
    assert (await harness.state("t"))[0] == 3
    assert (await harness.state("never"))[0] == -1
    await harness.stop()


# Reassignments


async def test_a_partition_moves_when_asked(harness):
    await harness.create_topic("t", (1, 2))
    harness.channel.take()
    answers = await harness.controller.reassign({("t", 0): (3, 2), ("t", 5): (1,), ("no", 0): None})
    assert {one: type(error) for one, error in answers.items()} == {
        ("t", 0): type(None),
        ("t", 5): UnknownTopicOrPartition,
        ("no", 0): UnknownTopicOrPartition,
    }
    assert harness.channel.take_leaders()[3, "t", 0][3]
    assert harness.controller.reassignments() == {("t", 0): Assignment((3, 2, 1), (3,), (1,))}
    assert (await harness.assignment("t")).adding_replicas == {0: (3,)}
    await harness.change_isr("t", 0, (1, 2, 3))
    await harness.settle()
    assert (await harness.assignment("t")).partitions == {0: (3, 2)}
    assert harness.controller.reassignments() == {}
    assert (await harness.state("t"))[0] == 3
    assert (1, "t", 0) in harness.channel.take_deletes()


async def test_a_move_is_cancelled_or_refused_when_asked(harness):
    await harness.create_topic("t", (1, 2))
    assert await harness.controller.reassign({("t", 0): (3,)}) == {("t", 0): None}
    assert await harness.controller.reassign({("t", 0): None}) == {("t", 0): None}
    assert set((await harness.assignment("t")).partitions[0]) == {1, 2}
    (error,) = (await harness.controller.reassign({("t", 0): None})).values()
    assert isinstance(error, NoReassignmentInProgress)
    (error,) = (await harness.controller.reassign({("t", 0): (9,)})).values()
    assert isinstance(error, InvalidReplicaAssignment)


async def test_partitions_move_by_znode(harness):
    await harness.create_topic("t", (1, 2), (1, 2), (1, 2))
    await harness.request_moves({("t", 0): (2, 3), ("t", 1): (3, 1), ("t", 2): (1, 2), ("no", 0): (1,), ("t", 9): (9,)})
    # What is done, or cannot be, is out of it at once.
    left = Reassignment.from_json((await harness.hand.get(REASSIGN_PARTITIONS))[0]).replicas
    assert left == {("t", 0): (2, 3), ("t", 1): (3, 1)}
    epoch = (await harness.state("t", 1))[1]
    await harness.change_isr("t", 0, (1, 2, 3))
    left = Reassignment.from_json((await harness.hand.get(REASSIGN_PARTITIONS))[0]).replicas
    assert left == {("t", 1): (3, 1)}
    assert (await harness.state("t", 1))[1] == epoch
    # A new controller goes on with it.
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    await harness.change_isr("t", 1, (1, 2, 3))
    assert not await harness.exists(REASSIGN_PARTITIONS)
    assert (await harness.assignment("t")).partitions == {0: (2, 3), 1: (3, 1), 2: (1, 2)}
    # The znode is watched again.
    await harness.request_moves({("t", 2): (2, 1)})
    assert (await harness.assignment("t")).partitions[2] == (2, 1)
    assert not await harness.exists(REASSIGN_PARTITIONS)


async def test_a_move_that_is_asked_for_later_supersedes_that_of_the_znode(harness):
    await harness.create_topic("t", (1,), (1,))
    await harness.request_moves({("t", 0): (2,), ("t", 1): (2,)})
    await harness.controller.reassign({("t", 0): (3,)})
    await harness.settle()
    assert harness.controller.reassignments()["t", 0].target == (3,)
    left = Reassignment.from_json((await harness.hand.get(REASSIGN_PARTITIONS))[0]).replicas
    assert left == {("t", 1): (2,)}


async def test_a_move_that_is_asked_for_later_and_refused_leaves_that_of_the_znode(harness):
    await harness.create_topic("t", (1,), (1,))
    wished = {("t", 0): (2,), ("t", 1): (2,)}
    await harness.request_moves(wished)
    answers = await harness.controller.reassign({("t", 0): (9,), ("t", 1): ()})
    assert {type(error) for error in answers.values()} == {InvalidReplicaAssignment}
    await harness.settle()
    assert Reassignment.from_json((await harness.hand.get(REASSIGN_PARTITIONS))[0]).replicas == wished
    assert {one: move.target for one, move in harness.controller.reassignments().items()} == wished


async def test_a_reassignment_that_cannot_be_read_goes(harness):
    await harness.hand.create(REASSIGN_PARTITIONS, b"no json")
    await harness.settle()
    assert not await harness.exists(REASSIGN_PARTITIONS)


async def test_partitions_added_while_others_move_are_not_lost(harness):
    await harness.create_topic("t", (1,))
    # The znode has grown, and the controller is asked for a move before it has heard of that.
    assigned = await harness.assignment("t")
    asked = asyncio.create_task(harness.controller.reassign({("t", 0): (2,)}))
    await asyncio.sleep(0)
    await harness.hand.set(topic_path("t"), assigned._replace(partitions={0: (1,), 1: (3,)}).to_json())
    await asked
    await harness.settle()
    assert (await harness.assignment("t")).partitions == {0: (2, 1), 1: (3,)}
    assert await harness.state("t", 1) == (3, 0, (3,))
