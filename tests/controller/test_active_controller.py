"""The controller election, and what happens to a controller that was replaced."""

import asyncio

import pytest
from controller_harness import ControllerHarness, Member

from headrace.controller import events
from headrace.controller.decisions.broker_requests import LeaderAndIsr, LeaderAndIsrResponse, UpdateMetadata
from headrace.controller.decisions.leader_elections import ElectionStrategy
from headrace.controller.events import STATE_NUMBERS, Event, RequestEvent
from headrace.coordination.interface import SessionState
from headrace.coordination.paths import CONTROLLER, CONTROLLER_EPOCH, broker_path, topic_path
from headrace.coordination.znodes import ControllerRegistration
from headrace.protocol.errors import ErrorCode, NotController


@pytest.fixture
async def harness():
    harness = ControllerHarness()
    yield harness
    await harness.stop()


async def controller_id(harness):
    return ControllerRegistration.from_json((await harness.hand.get(CONTROLLER))[0]).broker_id


async def test_the_first_is_controller_and_the_others_know(harness):
    await harness.start(1, 2, 3)
    assert harness.active.broker_id == 1
    assert [one.controller.active_controller_id for one in harness.members.values()] == [1, 1, 1]
    assert harness.controller.epoch == 1
    assert harness.members[2].controller.epoch == -1
    assert (await harness.hand.get(CONTROLLER_EPOCH))[0] == b"1"
    assert sorted(harness.channel.brokers) == [1, 2, 3]
    assert not harness.members[2].channel.is_open


async def test_deleting_the_controllers_znode_moves_it_or_renews_it(harness):
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2, 3))
    before = await harness.state("t")
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert harness.controller.epoch == 2
    assert await controller_id(harness) == harness.active.broker_id
    assert [one.controller.active_controller_id for one in harness.members.values()] == [harness.active.broker_id] * 3
    assert [one.channel.is_open for one in harness.members.values()].count(True) == 1
    # No partition was disturbed.
    assert await harness.state("t") == before
    told = harness.channel.take_leaders()
    assert {one[1] for one in told.values()} == {0}
    assert len(told) == 3


async def test_when_the_controller_dies_another_takes_over_and_elects(harness):
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2, 3))
    await harness.stop(1)
    assert harness.controller.epoch == 2
    assert await harness.state("t") == (2, 1, (2, 3))
    told = harness.channel.take_leaders()
    assert told[2, "t", 0][:3] == (2, 1, (2, 3))
    assert told[3, "t", 0][:3] == (2, 1, (2, 3))


async def test_a_leader_that_was_restarted_before_anyone_could_notice_does_not_lead_on(harness):
    """It was controller itself, and its host may have lost what it had: the next controller finds it as it was, but
    registered later than the state was written."""
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2, 3))
    await harness.create_topic("alone", (1,))
    died = harness.members.pop(1)
    await died.controller.stop()
    await died.coordination.close()
    reborn = type(died)(harness, 1, harness.session(), harness.settings)
    await reborn.register()
    harness.members[1] = reborn
    await harness.settle()
    assert harness.active.broker_id == 2
    assert await harness.state("t") == (2, 1, (2, 3))
    assert await harness.state("alone") == (1, 2, (1,))
    assert set(harness.channel.brokers) == {1, 2, 3}
    # And once that is settled, the next controller finds nothing to do.
    before = await harness.state("t"), await harness.state("alone")
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert (await harness.state("t"), await harness.state("alone")) == before


async def test_all_were_registered_anew_and_no_partition_is_seen_without_a_leader(harness):
    """librdkafka, told once that there is none, does not ask again."""
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2, 3), (2, 3, 1))
    for member in harness.members.values():
        await member.controller.stop()
    for member in harness.members.values():
        await member.coordination.close()
    harness.members = {one: Member(harness, one, harness.session(), harness.settings) for one in harness.members}
    for member in harness.members.values():
        await member.register()
    for member in harness.members.values():
        await member.controller.start()
    await harness.settle()
    sent = harness.channel.take()
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
    assert [await harness.state("t", index) for index in (0, 1)] == [(1, 1, (1, 2, 3)), (2, 1, (2, 3, 1))]


async def test_a_lost_session_ends_the_term_and_the_next_one_registers_anew(harness):
    await harness.start(1, 2)
    await harness.create_topic("t", (1, 2))
    first = harness.members[1]
    epoch_before = (await harness.hand.exists(broker_path(1))).czxid
    first.coordination.expire()
    await harness.settle()
    assert first.registered == 2
    assert (await harness.hand.exists(broker_path(1))).czxid > epoch_before
    assert harness.active.broker_id == 2
    assert not first.controller.is_active
    assert first.controller.active_controller_id == 2
    assert not first.channel.is_open
    assert await harness.state("t") == (2, 1, (2,))
    assert set(harness.channel.brokers) == {1, 2}


async def test_events_that_waited_when_the_session_was_lost_are_dropped(harness):
    await harness.start(1)
    asked = asyncio.create_task(harness.controller.elect_leaders(None, ElectionStrategy.PREFERRED))
    await asyncio.sleep(0)
    await harness.hand.create(topic_path("t"), b"whatever")
    harness.members[1].coordination.lose_session()
    with pytest.raises(NotController):
        await asked
    await harness.settle()
    assert "TopicChange" not in harness.members[1].controller.metrics.event_times
    assert harness.members[1].controller.metrics.event_times["Expire"].count == 1
    harness.members[1].coordination.start_session()
    await harness.settle()
    assert harness.controller.epoch == 2


async def test_the_same_session_on_another_connection_changes_nothing(harness):
    await harness.start(1)
    harness.members[1].coordination.notify(SessionState.SUSPENDED)
    harness.members[1].coordination.notify(SessionState.CONNECTED)
    await harness.settle()
    assert harness.controller.epoch == 1
    assert harness.members[1].registered == 1


async def test_one_whose_registration_is_of_an_earlier_session_registers_first(harness):
    await harness.start()
    await harness.start(1)
    member = harness.members[1]
    await member.controller.stop()
    session_id = member.coordination.session_id
    member.coordination.expire()
    later = harness.members[1] = type(member)(harness, 1, member.coordination, harness.settings)
    await later.controller.start(registered_in=session_id)
    await harness.settle()
    assert later.registered == 1
    assert later.controller.is_active


async def test_a_controller_that_does_not_know_of_its_successor_changes_nothing(harness):
    """Its watches are slow: it finds out by its writes."""
    await harness.start(1, 2)
    await harness.create_topic("t", (1, 2))
    old = harness.members[1]
    harness.host.tree.watches.drop_session(old.coordination.session_id)
    # Another is elected: the znode is replaced, the epoch raised.
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert harness.members[2].controller.is_active
    before = await harness.state("t")
    assert old.controller.is_active
    old.channel.take()
    with pytest.raises(NotController):
        await old.controller.controlled_shutdown(1, -1)
    await harness.settle()
    assert await harness.state("t") == before
    assert old.channel.take(LeaderAndIsr) == []
    assert not old.controller.is_active
    assert old.controller.active_controller_id == 2
    # It watches again.
    await harness.stop(2)
    assert old.controller.is_active


async def test_an_epoch_changed_by_hand_ends_the_term_and_the_next_begins(harness):
    await harness.start(1)
    await harness.hand.set(CONTROLLER_EPOCH, b"41")
    await harness.create_topic("t", (1,))
    assert harness.controller.epoch == 42
    assert await harness.state("t") == (1, 0, (1,))


async def test_a_new_controller_tells_everyone_who_lives_before_who_leads(harness):
    await harness.start(1, 2)
    await harness.create_topic("t", (1, 2))
    for member in harness.members.values():
        member.channel.take()
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    sent = harness.channel.take()
    kinds = [type(one) for one in sent if one.broker_id == 1]
    assert kinds.index(UpdateMetadata) < kinds.index(LeaderAndIsr)
    assert [one.broker_id for one in sent[0].live_brokers] == [1, 2]


async def test_questions_to_one_that_is_not_controller_are_refused(harness):
    await harness.start(1, 2)
    other = harness.members[2].controller
    for question in (
        other.controlled_shutdown(1, -1),
        other.elect_leaders(None, ElectionStrategy.PREFERRED),
        other.reassign({("t", 0): (1,)}),
    ):
        with pytest.raises(NotController):
            await question
    with pytest.raises(NotController):
        other.reassignments()


async def test_what_is_counted(harness):
    await harness.start(1, 2)
    await harness.create_topic("t", (1, 2), (2, 1), (9,))
    controller = harness.controller
    assert controller.metrics.active_controller_count == 1
    assert controller.metrics.active_broker_count == 2
    assert controller.metrics.global_topic_count == 1
    assert controller.metrics.global_partition_count == 3
    assert controller.metrics.offline_partitions_count == 1
    assert controller.metrics.preferred_replica_imbalance_count == 0
    await harness.stop(2)
    assert controller.metrics.preferred_replica_imbalance_count == 1
    other = ControllerHarness()
    await other.start(1, 2)
    idle = other.members[2].controller.metrics
    assert idle.active_controller_count == idle.global_partition_count == idle.offline_partitions_count == 0
    assert idle.preferred_replica_imbalance_count == idle.global_topic_count == idle.topics_to_delete_count == 0
    await other.stop()


async def test_times_are_kept_by_event(harness):
    await harness.start(1)
    await harness.create_topic("t", (1,))
    times = harness.controller.metrics.event_times
    assert times["Startup"].count == 1
    assert times["TopicChange"].count == 1
    assert all(one.processed_ns > 0 and one.queued_ns >= 0 for one in times["TopicChange"].recent)


async def test_what_the_controller_does_has_kafkas_number(harness):
    await harness.start(1)
    controller, seen = harness.controller, []
    assert controller.metrics.state_number == 0
    harness.channel.send = lambda request: seen.append((controller.metrics.state, controller.metrics.state_number))
    await harness.create_topic("t", (1,))
    assert set(seen) == {("TopicChange", 3)}


def test_every_event_has_a_number():
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}
    assert kinds - {Event, RequestEvent} == set(STATE_NUMBERS)
    assert set(STATE_NUMBERS.values()) == set(range(1, 15))


async def test_unclean_elections_are_counted_over_all_terms(harness):
    await harness.start(1, 2, 3)
    for topic, unclean in (("clean", "false"), ("t", "true"), ("u", "true")):
        await harness.create_topic(topic, (2, 3), **{"unclean.leader.election.enable": unclean})
    await harness.change_isr("t", 0, (2,))
    assert harness.controller.metrics.unclean_elections_count == 0
    await harness.stop(2)
    assert harness.controller.metrics.unclean_elections_count == 1
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert sum(one.controller.metrics.unclean_elections_count for one in harness.members.values()) == 1


async def test_what_is_left_of_deletions_is_counted(harness):
    await harness.start(1, 2, 3)
    await harness.create_topic("t", (1, 2), (2, 3))
    await harness.create_topic("u", (1,))
    controller = harness.controller
    harness.silent.add(3)
    await harness.stop(2)
    await harness.request_deletion("t")
    # 1 has answered, 3 has not yet, and 2 is dead.
    assert controller.metrics.topics_to_delete_count == 1
    assert controller.metrics.replicas_to_delete_count == 3
    assert (
        controller.metrics.topics_ineligible_to_delete_count,
        controller.metrics.replicas_ineligible_to_delete_count,
    ) == (1, 2)
    await harness.controller.reassign({("u", 0): (3,)})
    await harness.request_deletion("u")
    assert controller.metrics.topics_ineligible_to_delete_count == 2
    assert controller.metrics.replicas_ineligible_to_delete_count == 2


async def test_a_registration_that_fails_is_tried_again(harness):
    await harness.start(1, 2)
    member = harness.members[2]
    member.failures = 2
    member.coordination.expire()
    await harness.settle()
    assert not await harness.exists(broker_path(2))
    for _ in range(2):
        harness.clock.advance(1_000)
        harness.timer.advance()
        await harness.settle()
    assert await harness.exists(broker_path(2))
    assert 2 in harness.channel.brokers
    assert len(harness.timer) == 0


async def test_a_broker_that_fails_to_start_as_controller_resigns(harness, monkeypatch):
    await harness.start(1, 2)
    monkeypatch.setattr(harness.members[1].channel, "set_brokers", None)
    await harness.hand.delete(CONTROLLER)
    await harness.settle()
    assert harness.active.broker_id == 2
    assert await controller_id(harness) == 2


async def test_the_election_is_repeated_if_no_broker_can_start_as_controller(harness, monkeypatch):
    await harness.start(1, 2)
    with monkeypatch.context() as patch:
        for member in harness.members.values():
            patch.setattr(member.channel, "set_brokers", None)
        await harness.hand.delete(CONTROLLER)
        await harness.settle()
        assert not await harness.exists(CONTROLLER)
    harness.clock.advance(1_000)
    harness.timer.advance()
    await harness.settle()
    assert await controller_id(harness) == harness.active.broker_id


async def test_a_broker_that_knows_a_later_controller_makes_us_look(harness):
    await harness.start(1)
    await harness.create_topic("t", (1,))
    request = harness.channel.take(LeaderAndIsr)[0]
    before = harness.controller.metrics.event_times["ControllerChange"].count
    harness.controller.on_response(request, LeaderAndIsrResponse(ErrorCode.stale_controller_epoch, {}))
    await harness.settle()
    assert harness.controller.metrics.event_times["ControllerChange"].count == before + 1
    assert harness.controller.epoch == 1
