"""Who is controller, and what becomes of one that is not any more."""

import asyncio

import pytest
from clusterbed import ClusterBed, Member

from headrace.controller import events
from headrace.controller.decisions import Election
from headrace.controller.events import STATE_NUMBERS, Asked, Event
from headrace.controller.requests import LeaderAndIsr, LeadersAnswer, UpdateMetadata
from headrace.coordination.interface import SessionState
from headrace.coordination.paths import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    ControllerRegistration,
    broker_path,
    topic_path,
)
from headrace.protocol.errors import ErrorCode, NotController


@pytest.fixture
async def bed():
    bed = ClusterBed()
    yield bed
    await bed.stop()


async def controller_id(bed):
    return ControllerRegistration.from_json((await bed.hand.get(CONTROLLER))[0]).broker_id


async def test_the_first_is_controller_and_the_others_know(bed):
    await bed.start(1, 2, 3)
    assert bed.active.broker_id == 1
    assert [one.controller.active_controller_id for one in bed.members.values()] == [1, 1, 1]
    assert bed.controller.epoch == 1
    assert bed.members[2].controller.epoch == -1
    assert (await bed.hand.get(CONTROLLER_EPOCH))[0] == b"1"
    assert sorted(bed.channel.brokers) == [1, 2, 3]
    assert not bed.members[2].channel.is_open


async def test_deleting_the_controllers_znode_moves_it_or_renews_it(bed):
    await bed.start(1, 2, 3)
    await bed.create_topic("t", (1, 2, 3))
    before = await bed.state("t")
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert bed.controller.epoch == 2
    assert await controller_id(bed) == bed.active.broker_id
    assert [one.controller.active_controller_id for one in bed.members.values()] == [bed.active.broker_id] * 3
    assert [one.channel.is_open for one in bed.members.values()].count(True) == 1
    # No partition was disturbed.
    assert await bed.state("t") == before
    told = bed.channel.take_leaders()
    assert {one[1] for one in told.values()} == {0}
    assert len(told) == 3


async def test_when_the_controller_dies_another_takes_over_and_elects(bed):
    await bed.start(1, 2, 3)
    await bed.create_topic("t", (1, 2, 3))
    await bed.stop(1)
    assert bed.controller.epoch == 2
    assert await bed.state("t") == (2, 1, (2, 3))
    told = bed.channel.take_leaders()
    assert told[2, "t", 0][:3] == (2, 1, (2, 3))
    assert told[3, "t", 0][:3] == (2, 1, (2, 3))


async def test_a_leader_that_was_restarted_before_anyone_could_notice_does_not_lead_on(bed):
    """It was controller itself, and its host may have lost what it had: the next controller finds it as it was, but
    registered later than the state was written."""
    await bed.start(1, 2, 3)
    await bed.create_topic("t", (1, 2, 3))
    await bed.create_topic("alone", (1,))
    died = bed.members.pop(1)
    await died.controller.stop()
    await died.coordination.close()
    reborn = type(died)(bed, 1, bed.session(), bed.settings)
    await reborn.register()
    bed.members[1] = reborn
    await bed.settle()
    assert bed.active.broker_id == 2
    assert await bed.state("t") == (2, 1, (2, 3))
    assert await bed.state("alone") == (1, 2, (1,))
    assert set(bed.channel.brokers) == {1, 2, 3}
    # And once that is settled, the next controller finds nothing to do.
    before = await bed.state("t"), await bed.state("alone")
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert (await bed.state("t"), await bed.state("alone")) == before


async def test_all_were_registered_anew_and_no_partition_is_seen_without_a_leader(bed):
    """librdkafka, told once that there is none, does not ask again."""
    await bed.start(1, 2, 3)
    await bed.create_topic("t", (1, 2, 3), (2, 3, 1))
    for member in bed.members.values():
        await member.controller.stop()
    for member in bed.members.values():
        await member.coordination.close()
    bed.members = {one: Member(bed, one, bed.session(), bed.settings) for one in bed.members}
    for member in bed.members.values():
        await member.register()
    for member in bed.members.values():
        await member.controller.start()
    await bed.settle()
    sent = bed.channel.take()
    metadata = {
        (one.partition, one.leader) for told in sent if isinstance(told, UpdateMetadata) for one in told.partitions
    }
    assert metadata == {(0, 1), (1, 2)}
    # In a new epoch, as who leads may have been restarted and have forgotten what it wrote in the last one.
    leaders = {
        (one.partition, *one.leadership[:2])
        for told in sent
        if isinstance(told, LeaderAndIsr)
        for one in told.partitions
    }
    assert leaders == {(0, 1, 1), (1, 2, 1)}
    assert [await bed.state("t", index) for index in (0, 1)] == [(1, 1, (1, 2, 3)), (2, 1, (2, 3, 1))]


async def test_a_lost_session_ends_the_term_and_the_next_one_registers_anew(bed):
    await bed.start(1, 2)
    await bed.create_topic("t", (1, 2))
    first = bed.members[1]
    epoch_before = (await bed.hand.exists(broker_path(1))).czxid
    first.coordination.expire()
    await bed.settle()
    assert first.registered == 2
    assert (await bed.hand.exists(broker_path(1))).czxid > epoch_before
    assert bed.active.broker_id == 2
    assert not first.controller.is_active
    assert first.controller.active_controller_id == 2
    assert not first.channel.is_open
    assert await bed.state("t") == (2, 1, (2,))
    assert set(bed.channel.brokers) == {1, 2}


async def test_events_that_waited_when_the_session_was_lost_are_dropped(bed):
    await bed.start(1)
    asked = asyncio.create_task(bed.controller.elect_leaders(None, Election.PREFERRED))
    await asyncio.sleep(0)
    await bed.hand.create(topic_path("t"), b"whatever")
    bed.members[1].coordination.lose_session()
    with pytest.raises(NotController):
        await asked
    await bed.settle()
    assert "TopicChange" not in bed.members[1].controller.event_times
    assert bed.members[1].controller.event_times["Expire"].count == 1
    bed.members[1].coordination.begin_session()
    await bed.settle()
    assert bed.controller.epoch == 2


async def test_the_same_session_on_another_connection_changes_nothing(bed):
    await bed.start(1)
    bed.members[1].coordination._tell(SessionState.SUSPENDED)
    bed.members[1].coordination._tell(SessionState.CONNECTED)
    await bed.settle()
    assert bed.controller.epoch == 1
    assert bed.members[1].registered == 1


async def test_one_whose_registration_is_of_an_earlier_session_registers_first(bed):
    await bed.start()
    await bed.start(1)
    member = bed.members[1]
    await member.controller.stop()
    session_id = member.coordination.session_id
    member.coordination.expire()
    later = bed.members[1] = type(member)(bed, 1, member.coordination, bed.settings)
    await later.controller.start(registered_in=session_id)
    await bed.settle()
    assert later.registered == 1
    assert later.controller.is_active


async def test_a_controller_that_does_not_know_of_its_successor_changes_nothing(bed):
    """Its watches are slow: it finds out by its writes."""
    await bed.start(1, 2)
    await bed.create_topic("t", (1, 2))
    old = bed.members[1]
    bed.host.tree.watches.drop_session(old.coordination.session_id)
    # Another is elected: the znode is replaced, the epoch raised.
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert bed.members[2].controller.is_active
    before = await bed.state("t")
    assert old.controller.is_active
    old.channel.take()
    with pytest.raises(NotController):
        await old.controller.controlled_shutdown(1, -1)
    await bed.settle()
    assert await bed.state("t") == before
    assert old.channel.take(LeaderAndIsr) == []
    assert not old.controller.is_active
    assert old.controller.active_controller_id == 2
    # It watches again.
    await bed.stop(2)
    assert old.controller.is_active


async def test_an_epoch_changed_by_hand_ends_the_term_and_the_next_begins(bed):
    await bed.start(1)
    await bed.hand.set(CONTROLLER_EPOCH, b"41")
    await bed.create_topic("t", (1,))
    assert bed.controller.epoch == 42
    assert await bed.state("t") == (1, 0, (1,))


async def test_a_new_controller_tells_everyone_who_lives_before_who_leads(bed):
    await bed.start(1, 2)
    await bed.create_topic("t", (1, 2))
    for member in bed.members.values():
        member.channel.take()
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    sent = bed.channel.take()
    kinds = [type(one) for one in sent if one.broker_id == 1]
    assert kinds.index(UpdateMetadata) < kinds.index(LeaderAndIsr)
    assert [one.broker_id for one in sent[0].live_brokers] == [1, 2]


async def test_questions_to_one_that_is_not_controller_are_refused(bed):
    await bed.start(1, 2)
    other = bed.members[2].controller
    for question in (
        other.controlled_shutdown(1, -1),
        other.elect_leaders(None, Election.PREFERRED),
        other.reassign({("t", 0): (1,)}),
    ):
        with pytest.raises(NotController):
            await question
    with pytest.raises(NotController):
        other.reassignments()


async def test_what_is_counted(bed):
    await bed.start(1, 2)
    await bed.create_topic("t", (1, 2), (2, 1), (9,))
    controller = bed.controller
    assert controller.active_controller_count == 1
    assert controller.active_broker_count == 2
    assert controller.global_topic_count == 1
    assert controller.global_partition_count == 3
    assert controller.offline_partitions_count == 1
    assert controller.preferred_replica_imbalance_count == 0
    await bed.stop(2)
    assert controller.preferred_replica_imbalance_count == 1
    other = ClusterBed()
    await other.start(1, 2)
    idle = other.members[2].controller
    assert idle.active_controller_count == idle.global_partition_count == idle.offline_partitions_count == 0
    assert idle.preferred_replica_imbalance_count == idle.global_topic_count == idle.topics_to_delete_count == 0
    await other.stop()


async def test_times_are_kept_by_event(bed):
    await bed.start(1)
    await bed.create_topic("t", (1,))
    times = bed.controller.event_times
    assert times["Startup"].count == 1
    assert times["TopicChange"].count == 1
    assert all(one.processed_ns > 0 and one.queued_ns >= 0 for one in times["TopicChange"].recent)


async def test_what_the_controller_does_has_kafkas_number(bed):
    await bed.start(1)
    controller, seen = bed.controller, []
    assert controller.state_number == 0
    bed.channel.send = lambda request: seen.append((controller.state, controller.state_number))
    await bed.create_topic("t", (1,))
    assert set(seen) == {("TopicChange", 3)}


def test_every_event_has_a_number():
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}
    assert kinds - {Event, Asked} == set(STATE_NUMBERS)
    assert set(STATE_NUMBERS.values()) == set(range(1, 15))


async def test_unclean_elections_are_counted_over_all_terms(bed):
    await bed.start(1, 2, 3)
    for topic, unclean in (("clean", "false"), ("t", "true"), ("u", "true")):
        await bed.create_topic(topic, (2, 3), **{"unclean.leader.election.enable": unclean})
    await bed.change_isr("t", 0, (2,))
    assert bed.controller.unclean_elections_count == 0
    await bed.stop(2)
    assert bed.controller.unclean_elections_count == 1
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert sum(one.controller.unclean_elections_count for one in bed.members.values()) == 1


async def test_what_is_left_of_deletions_is_counted(bed):
    await bed.start(1, 2, 3)
    await bed.create_topic("t", (1, 2), (2, 3))
    await bed.create_topic("u", (1,))
    controller = bed.controller
    bed.silent.add(3)
    await bed.stop(2)
    await bed.wish_deletion("t")
    # 1 has answered, 3 has not yet, and 2 is dead.
    assert controller.topics_to_delete_count == 1
    assert controller.replicas_to_delete_count == 3
    assert (controller.topics_ineligible_to_delete_count, controller.replicas_ineligible_to_delete_count) == (1, 2)
    await bed.controller.reassign({("u", 0): (3,)})
    await bed.wish_deletion("u")
    assert controller.topics_ineligible_to_delete_count == 2
    assert controller.replicas_ineligible_to_delete_count == 2


async def test_a_registration_that_fails_is_tried_again(bed):
    await bed.start(1, 2)
    member = bed.members[2]
    member.failures = 2
    member.coordination.expire()
    await bed.settle()
    assert not await bed.exists(broker_path(2))
    for _ in range(2):
        bed.clock.advance(1_000)
        bed.timer.advance()
        await bed.settle()
    assert await bed.exists(broker_path(2))
    assert 2 in bed.channel.brokers
    assert len(bed.timer) == 0


async def test_one_that_fails_to_take_office_leaves_it_to_another(bed, monkeypatch):
    await bed.start(1, 2)
    monkeypatch.setattr(bed.members[1].channel, "set_brokers", None)
    await bed.hand.delete(CONTROLLER)
    await bed.settle()
    assert bed.active.broker_id == 2
    assert await controller_id(bed) == 2


async def test_when_nobody_can_take_office_it_is_tried_again_later(bed, monkeypatch):
    await bed.start(1, 2)
    with monkeypatch.context() as patch:
        for member in bed.members.values():
            patch.setattr(member.channel, "set_brokers", None)
        await bed.hand.delete(CONTROLLER)
        await bed.settle()
        assert not await bed.exists(CONTROLLER)
    bed.clock.advance(1_000)
    bed.timer.advance()
    await bed.settle()
    assert await controller_id(bed) == bed.active.broker_id


async def test_a_broker_that_knows_a_later_controller_makes_us_look(bed):
    await bed.start(1)
    await bed.create_topic("t", (1,))
    request = bed.channel.take(LeaderAndIsr)[0]
    before = bed.controller.event_times["ControllerChange"].count
    bed.controller.answered(request, LeadersAnswer(ErrorCode.stale_controller_epoch, {}))
    await bed.settle()
    assert bed.controller.event_times["ControllerChange"].count == before + 1
    assert bed.controller.epoch == 1
