"""What the active controller does when something happens, through the tree and the brokers' answers."""

import asyncio

import pytest
from clusterbed import ClusterBed

from headrace.controller.decisions import Election
from headrace.controller.reassignments import Assignment
from headrace.controller.requests import LEADER_DURING_DELETE, UpdateMetadata
from headrace.coordination.paths import (
    CONTROLLER,
    ISR_CHANGES,
    LOG_DIR_EVENT_PREFIX,
    LOG_DIR_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    REASSIGN_PARTITIONS,
    BrokerRegistration,
    Endpoint,
    EntityConfig,
    LogDirFailure,
    PartitionSet,
    Reassignment,
    TopicAssignment,
    broker_path,
    delete_topic_path,
    partitions_path,
    random_uuid,
    topic_config_path,
    topic_path,
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
async def bed():
    bed = await ClusterBed().start(1, 2, 3)
    yield bed
    await bed.stop()


# Topics


async def test_a_new_topic_gets_leaders_and_everyone_hears_of_it(bed):
    bed.channel.take()
    await bed.create_topic("t", (1, 2, 3), (2, 3, 1))
    assert await bed.state("t", 0) == (1, 0, (1, 2, 3))
    assert await bed.state("t", 1) == (2, 0, (2, 3, 1))
    sent = list(bed.channel.sent)
    told = bed.channel.take_leaders()
    assert told[3, "t", 1] == (2, 0, (2, 3, 1), True)
    assert len(told) == 6
    metadata = [one for one in sent if isinstance(one, UpdateMetadata)]
    assert {one.broker_id for one in metadata} == {1, 2, 3}
    assert {one.topic_ids["t"] for one in metadata} == {(await bed.assignment("t")).topic_id}


async def test_many_topics_at_once(bed):
    for number in range(20):
        assigned = TopicAssignment(random_uuid(), {0: (1, 2), 1: (2, 3)})
        await bed.hand.create(topic_path(f"t{number}"), assigned.to_json())
    await bed.settle()
    assert [await bed.state(f"t{number}", 1) for number in range(20)] == [(2, 0, (2, 3))] * 20


async def test_a_topic_grows(bed):
    await bed.create_topic("t", (1, 2))
    bed.channel.take()
    await bed.grow("t", (3, 1), (2, 3))
    assert await bed.state("t", 1) == (3, 0, (3, 1))
    assert {key[1:] for key in bed.channel.take_leaders()} == {("t", 1), ("t", 2)}
    await bed.grow("t", (1, 2))
    assert await bed.state("t", 3) == (1, 0, (1, 2))


async def test_a_topic_is_deleted_when_all_replicas_are(bed):
    await bed.create_topic("t", (1, 2), (2, 3))
    await bed.create_topic("other", (1, 2))
    bed.silent.add(3)
    bed.channel.take()
    await bed.wish_deletion("t")
    sent = list(bed.channel.sent)
    assert bed.channel.take_deletes() == {(1, "t", 0), (2, "t", 0), (2, "t", 1), (3, "t", 1)}
    metadata = [one for request in sent if isinstance(request, UpdateMetadata) for one in request.partitions]
    assert {one.leader for one in metadata} == {LEADER_DURING_DELETE}
    assert await bed.exists(topic_path("t"))
    # The one that has not answered dies and comes back: it is told again.
    bed.silent.clear()
    await bed.stop(3)
    assert await bed.exists(delete_topic_path("t"))
    await bed.start(3)
    for path in (topic_path("t"), delete_topic_path("t"), topic_config_path("t")):
        assert not await bed.exists(path)
    assert await bed.state("other") == (1, 0, (1, 2))
    # The name is free.
    await bed.create_topic("t", (3,))
    assert await bed.state("t") == (3, 0, (3,))


async def test_a_topic_with_strange_znodes_below_is_deleted_with_them(bed):
    await bed.create_topic("t", (1,))
    await bed.hand.create(f"{partitions_path('t')}/0/strange")
    await bed.hand.create(f"{partitions_path('t')}/7")
    await bed.wish_deletion("t")
    assert not await bed.exists(topic_path("t"))


async def test_the_wish_to_delete_what_is_not_there_goes(bed):
    await bed.wish_deletion("nothing")
    assert not await bed.exists(delete_topic_path("nothing"))


async def test_a_topic_that_is_wished_away_before_the_controller_knows_it(bed):
    """The controller is at an earlier wish while the topic and the wish come."""
    await bed.hand.create(delete_topic_path("before"))
    assigned = TopicAssignment(random_uuid(), {0: (1,)})
    await bed.hand.create(topic_path("t"), assigned.to_json())
    await bed.hand.create(delete_topic_path("t"))
    await bed.settle()
    assert not await bed.exists(topic_path("t"))
    assert not await bed.exists(delete_topic_path("t"))


async def test_deletion_can_be_disabled():
    bed = await ClusterBed(delete_topic_enable=False).start(1)
    await bed.create_topic("t", (1,))
    await bed.wish_deletion("t")
    assert await bed.exists(topic_path("t"))
    assert not await bed.exists(delete_topic_path("t"))
    await bed.stop()


async def test_deletion_goes_on_with_the_next_controller(bed):
    await bed.create_topic("t", (1, 2))
    bed.silent.add(2)
    await bed.wish_deletion("t")
    assert await bed.exists(topic_path("t"))
    bed.silent.clear()
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert not await bed.exists(topic_path("t"))


async def test_a_topic_removed_and_made_again_by_hand_is_another_topic(bed):
    await bed.create_topic("t", (1, 2))
    for path in (f"{partitions_path('t')}/0/state", f"{partitions_path('t')}/0", partitions_path("t"), topic_path("t")):
        await bed.hand.delete(path)
    assigned = TopicAssignment(random_uuid(), {0: (3,)})
    await bed.hand.create(topic_path("t"), assigned.to_json())
    await bed.settle()
    assert await bed.state("t") == (3, 0, (3,))
    assert bed.controller.global_partition_count == 1


async def test_a_topic_that_cannot_be_read_stops_no_other(bed):
    await bed.hand.create(topic_path("bad"), b"{")
    await bed.create_topic("good", (1,))
    assert await bed.state("good") == (1, 0, (1,))
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert bed.controller.global_topic_count == 1


# Brokers


async def test_a_broker_dies_and_returns(bed):
    await bed.create_topic("t", (2, 1, 3), (3, 2))
    bed.channel.take()
    await bed.stop(2)
    assert await bed.state("t", 0) == (1, 1, (1, 3))
    assert await bed.state("t", 1) == (3, 1, (3,))
    assert 2 not in bed.channel.brokers
    epoch = bed.controller.epoch
    bed.channel.take()
    await bed.start(2)
    told = bed.channel.take_leaders()
    assert told[2, "t", 0][:3] == (1, 1, (1, 3))
    assert told[2, "t", 1][:3] == (3, 1, (3,))
    assert bed.controller.epoch == epoch


async def test_a_broker_that_is_back_before_its_death_was_noticed_counts_as_restarted(bed):
    await bed.create_topic("t", (2, 1))
    member = bed.members[2]
    before = bed.channel.brokers[2].epoch
    await member.coordination.delete(broker_path(2))
    await member.register()
    await bed.settle()
    assert bed.channel.brokers[2].epoch > before
    assert await bed.state("t") == (1, 1, (1,))


async def test_a_new_address_is_told(bed):
    bed.channel.take()
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 1)
    await bed.members[2].coordination.set(broker_path(2), BrokerRegistration((endpoint,), 0).to_json())
    await bed.settle()
    (told,) = [one for one in bed.channel.take(UpdateMetadata) if one.broker_id == 3]
    assert {one.broker_id: one.registration.endpoints[0].host for one in told.live_brokers}[2] == "elsewhere"
    assert bed.channel.brokers[2].registration.endpoints == (endpoint,)
    assert bed.controller.event_times["BrokerModifications"].count == 1


async def test_a_broker_leaves_in_order(bed):
    await bed.create_topic("t", (1, 2, 3), (2, 3), (3,))
    assert await bed.controller.controlled_shutdown(2, -1) == []
    assert await bed.state("t", 1) == (3, 1, (3,))
    assert (await bed.state("t", 0))[2] == (1, 3)
    with pytest.raises(BrokerNotAvailable):
        await bed.controller.controlled_shutdown(9, -1)
    with pytest.raises(StaleBrokerEpoch):
        await bed.controller.controlled_shutdown(3, 0)


async def test_a_disk_fails_and_its_replicas_lead_no_more(bed):
    await bed.create_topic("t", (1, 2), (1, 3))
    bed.lost[1] = {("t", 0)}
    await bed.hand.create(LOG_DIR_EVENT_PREFIX, LogDirFailure(1).to_json(), sequence=True)
    await bed.settle()
    assert await bed.state("t", 0) == (2, 1, (2,))
    assert (await bed.state("t", 1))[0] == 1
    assert await bed.hand.children(LOG_DIR_EVENTS) == []


# Leaders


async def test_an_isr_that_changed_is_told_and_its_notification_goes(bed):
    await bed.create_topic("t", (1, 2, 3))
    bed.channel.take()
    await bed.change_isr("t", 0, (1, 3))
    told = bed.channel.take(UpdateMetadata)
    assert {one.broker_id for one in told} == {1, 2, 3}
    assert told[0].partitions[0].leadership.isr == (1, 3)
    assert await bed.hand.children(ISR_CHANGES) == []


async def test_an_isr_that_changed_unnoticed_is_not_overwritten(bed):
    await bed.create_topic("t", (1, 2, 3))
    await bed.change_isr("t", 0, (1, 3), is_told=False)
    await bed.stop(1)
    assert await bed.state("t") == (3, 1, (3,))


async def test_notifications_from_before_are_cleared_by_a_new_controller(bed):
    await bed.create_topic("t", (1, 2, 3))
    for member in bed.members.values():
        await member.controller.stop()
    await bed.change_isr("t", 0, (1, 3))
    assert await bed.hand.children(ISR_CHANGES) != []
    await bed.stop()
    await bed.start(1, 3)
    assert await bed.hand.children(ISR_CHANGES) == []
    assert await bed.state("t") == (1, 1, (1,))  # 1 had gone and come unseen: it leads in a new epoch


async def test_preferred_leaders_are_elected_by_znode(bed):
    await bed.create_topic("t", (1, 2), (2, 1))
    await bed.stop(2)
    await bed.start(2)
    await bed.change_isr("t", 1, (1, 2))
    content = PartitionSet.of([("t", 0), ("t", 1), ("unknown", 0)]).to_json()
    await bed.hand.create(PREFERRED_REPLICA_ELECTION, content)
    await bed.settle()
    assert (await bed.state("t", 1))[0] == 2
    assert not await bed.exists(PREFERRED_REPLICA_ELECTION)
    # And once more; what cannot be read goes.
    await bed.hand.create(PREFERRED_REPLICA_ELECTION, b"[]")
    await bed.settle()
    assert not await bed.exists(PREFERRED_REPLICA_ELECTION)


async def test_leaders_are_elected_when_asked(bed):
    await bed.create_topic("t", (1, 2), (2, 1), (2, 3))
    await bed.stop(2)
    await bed.start(2)
    await bed.change_isr("t", 1, (1, 2))
    controller = bed.controller
    answers = await controller.elect_leaders([("t", 0), ("t", 2), ("no", 0)], Election.PREFERRED)
    assert {one: type(error) for one, error in answers.items()} == {
        ("t", 0): ElectionNotNeeded,
        ("t", 2): PreferredLeaderNotAvailable,
        ("no", 0): UnknownTopicOrPartition,
    }
    answers = await controller.elect_leaders(None, Election.PREFERRED)
    assert answers[("t", 1)] is None
    assert set(answers) == {("t", 1), ("t", 2)}
    assert (await bed.state("t", 1))[0] == 2


async def test_leaders_go_back_by_themselves():
    bed = await ClusterBed(auto_leader_rebalance_enable=True).start(1, 2)
    await bed.create_topic("t", (2, 1))
    await bed.stop(2)
    await bed.start(2)
    await bed.change_isr("t", 0, (1, 2))
    for passed_ms, leader in ((4_999, 1), (1, 2)):
        bed.clock.advance(passed_ms)
        bed.timer.advance()
        await bed.settle()
        assert (await bed.state("t"))[0] == leader
    assert len(bed.timer) == 1
    bed.clock.advance(300_000)
    bed.timer.advance()
    await bed.settle()
    assert bed.controller.event_times["AutoPreferredReplicaLeaderElection"].count == 2
    await bed.stop()
    assert len(bed.timer) == 0


async def test_an_unclean_leader_is_elected_when_the_topic_allows_it(bed):
    await bed.create_topic("t", (2, 3))
    await bed.change_isr("t", 0, (2,))
    await bed.stop(2)
    assert (await bed.state("t"))[0] == -1
    content = EntityConfig({"unclean.leader.election.enable": "true"}).to_json()
    await bed.hand.set(topic_config_path("t"), content)
    bed.controller.unclean_election_changed("t")
    await bed.settle()
    assert (await bed.state("t"))[0] == 3
    # A new controller reads it.
    await bed.create_topic("u", (1, 3), **{"unclean.leader.election.enable": "true"})
    await bed.change_isr("u", 0, (1,))
    await bed.stop(1)
    assert (await bed.state("u"))[0] == 3


async def test_an_unclean_leader_is_elected_when_the_brokers_allow_it():
    allowed = []
    bed = await ClusterBed(is_unclean_by_default=lambda: bool(allowed)).start(1, 2, 3)
    await bed.create_topic("t", (2, 3))
    await bed.create_topic("never", (2, 3), **{"unclean.leader.election.enable": "false"})
    for topic in ("t", "never"):
        await bed.change_isr(topic, 0, (2,))
    await bed.stop(2)
    allowed.append(True)
    for member in bed.members.values():
        member.controller.unclean_election_changed()
    await bed.settle()
    assert (await bed.state("t"))[0] == 3
    assert (await bed.state("never"))[0] == -1
    await bed.stop()


# Reassignments


async def test_a_partition_moves_when_asked(bed):
    await bed.create_topic("t", (1, 2))
    bed.channel.take()
    answers = await bed.controller.reassign({("t", 0): (3, 2), ("t", 5): (1,), ("no", 0): None})
    assert {one: type(error) for one, error in answers.items()} == {
        ("t", 0): type(None),
        ("t", 5): UnknownTopicOrPartition,
        ("no", 0): UnknownTopicOrPartition,
    }
    assert bed.channel.take_leaders()[3, "t", 0][3]
    assert bed.controller.reassignments() == {("t", 0): Assignment((3, 2, 1), (3,), (1,))}
    assert (await bed.assignment("t")).adding_replicas == {0: (3,)}
    await bed.change_isr("t", 0, (1, 2, 3))
    await bed.settle()
    assert (await bed.assignment("t")).partitions == {0: (3, 2)}
    assert bed.controller.reassignments() == {}
    assert (await bed.state("t"))[0] == 3
    assert (1, "t", 0) in bed.channel.take_deletes()


async def test_a_move_is_cancelled_or_refused_when_asked(bed):
    await bed.create_topic("t", (1, 2))
    assert await bed.controller.reassign({("t", 0): (3,)}) == {("t", 0): None}
    assert await bed.controller.reassign({("t", 0): None}) == {("t", 0): None}
    assert set((await bed.assignment("t")).partitions[0]) == {1, 2}
    (error,) = (await bed.controller.reassign({("t", 0): None})).values()
    assert isinstance(error, NoReassignmentInProgress)
    (error,) = (await bed.controller.reassign({("t", 0): (9,)})).values()
    assert isinstance(error, InvalidReplicaAssignment)


async def test_partitions_move_by_znode(bed):
    await bed.create_topic("t", (1, 2), (1, 2), (1, 2))
    await bed.wish_moves({("t", 0): (2, 3), ("t", 1): (3, 1), ("t", 2): (1, 2), ("no", 0): (1,), ("t", 9): (9,)})
    # What is done, or cannot be, is out of it at once.
    left = Reassignment.from_json((await bed.hand.get(REASSIGN_PARTITIONS))[0]).replicas
    assert left == {("t", 0): (2, 3), ("t", 1): (3, 1)}
    epoch = (await bed.state("t", 1))[1]
    await bed.change_isr("t", 0, (1, 2, 3))
    left = Reassignment.from_json((await bed.hand.get(REASSIGN_PARTITIONS))[0]).replicas
    assert left == {("t", 1): (3, 1)}
    assert (await bed.state("t", 1))[1] == epoch
    # A new controller goes on with it.
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    await bed.change_isr("t", 1, (1, 2, 3))
    assert not await bed.exists(REASSIGN_PARTITIONS)
    assert (await bed.assignment("t")).partitions == {0: (2, 3), 1: (3, 1), 2: (1, 2)}
    # The znode is watched again.
    await bed.wish_moves({("t", 2): (2, 1)})
    assert (await bed.assignment("t")).partitions[2] == (2, 1)
    assert not await bed.exists(REASSIGN_PARTITIONS)


async def test_a_move_that_is_asked_for_later_supersedes_that_of_the_znode(bed):
    await bed.create_topic("t", (1,), (1,))
    await bed.wish_moves({("t", 0): (2,), ("t", 1): (2,)})
    await bed.controller.reassign({("t", 0): (3,)})
    await bed.settle()
    assert bed.controller.reassignments()["t", 0].target == (3,)
    left = Reassignment.from_json((await bed.hand.get(REASSIGN_PARTITIONS))[0]).replicas
    assert left == {("t", 1): (2,)}


async def test_a_move_that_is_asked_for_later_and_refused_leaves_that_of_the_znode(bed):
    await bed.create_topic("t", (1,), (1,))
    wished = {("t", 0): (2,), ("t", 1): (2,)}
    await bed.wish_moves(wished)
    answers = await bed.controller.reassign({("t", 0): (9,), ("t", 1): ()})
    assert {type(error) for error in answers.values()} == {InvalidReplicaAssignment}
    await bed.settle()
    assert Reassignment.from_json((await bed.hand.get(REASSIGN_PARTITIONS))[0]).replicas == wished
    assert {one: move.target for one, move in bed.controller.reassignments().items()} == wished


async def test_a_reassignment_that_cannot_be_read_goes(bed):
    await bed.hand.create(REASSIGN_PARTITIONS, b"no json")
    await bed.settle()
    assert not await bed.exists(REASSIGN_PARTITIONS)


async def test_partitions_added_while_others_move_are_not_lost(bed):
    await bed.create_topic("t", (1,))
    # The znode has grown, and the controller is asked for a move before it has heard of that.
    assigned = await bed.assignment("t")
    asked = asyncio.create_task(bed.controller.reassign({("t", 0): (2,)}))
    await asyncio.sleep(0)
    await bed.hand.set(topic_path("t"), assigned._replace(partitions={0: (1,), 1: (3,)}).to_json())
    await asked
    await bed.settle()
    assert (await bed.assignment("t")).partitions == {0: (2, 1), 1: (3,)}
    assert await bed.state("t", 1) == (3, 0, (3,))
