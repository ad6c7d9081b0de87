"""Heartbeat, LeaveGroup and session timeouts: how the coordinator learns that a member has gone."""

import pytest
from group_harness import DELAY_MS, NONE, SESSION_MS, GroupHarness

from headrace.groups.classic.states import ClassicGroupState
from headrace.groups.group import LeavingMember
from headrace.protocol.errors import CoordinatorNotAvailable, ErrorCode


@pytest.fixture
def harness():
    """Two members, settled."""
    harness = GroupHarness()
    harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    return harness


def test_a_crashed_member_is_noticed_after_its_session_timeout(harness):
    alive, crashed = harness.clients["a"], harness.clients["b"]
    harness.advance(SESSION_MS - 1)
    assert harness.state is ClassicGroupState.STABLE
    alive.heartbeats()
    harness.advance(1)
    assert harness.state is ClassicGroupState.PREPARING
    assert alive.heartbeat() is ErrorCode.rebalance_in_progress
    assert crashed.heartbeat() is ErrorCode.unknown_member_id
    alive.joins()
    assert harness.noted() == ["a joined 2 leading a"]


def test_a_group_whose_members_all_crash_is_empty(harness):
    harness.advance(SESSION_MS)
    assert harness.state is ClassicGroupState.EMPTY
    assert harness.group.is_empty


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [("x", 1, "unknown_member_id"), (None, 0, "illegal_generation"), (None, 2, "illegal_generation")],
)
def test_whose_heartbeats_are_refused(harness, member_id, generation_id, error):
    a = harness.clients["a"]
    a.member_id, a.generation_id = member_id or a.member_id, generation_id
    assert a.heartbeat() is ErrorCode[error]


def test_a_heartbeat_before_the_sync_is_fine():
    harness = GroupHarness()
    a = harness.join("a")
    harness.advance(DELAY_MS)
    assert harness.state is ClassicGroupState.COMPLETING
    a.heartbeats()


def test_heartbeats_keep_a_member_alive_while_a_rebalance_waits_for_it(harness):
    a, b = harness.clients.values()
    a.joins()
    for _ in range(5):
        harness.advance(SESSION_MS - 1)
        assert b.heartbeat() is ErrorCode.rebalance_in_progress
    b.joins()
    assert harness.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_a_session_does_not_end_while_its_member_waits_for_us(harness):
    a, b = harness.clients.values()
    a.joins()
    for _ in range(4):
        harness.advance(SESSION_MS - 1)
        b.heartbeat()
    b.joins()
    b.syncs()
    for _ in range(4):
        harness.advance(SESSION_MS - 1)
        a.heartbeats()
    a.syncs()
    assert harness.noted() == ["a joined 2 leading a b", "b joined 2", "a synced part-of-a", "b synced part-of-b"]
    harness.advance(SESSION_MS - 1)
    b.heartbeats()


def test_a_session_begins_anew_with_each_answer(harness):
    a, b = harness.clients.values()
    a.joins()
    harness.advance(SESSION_MS - 1)
    b.joins()
    harness.advance(SESSION_MS - 1)
    assert harness.state is ClassicGroupState.COMPLETING
    assert len(harness.group.members) == 2


def test_who_leaves_is_gone_at_once(harness):
    a, b = harness.clients.values()
    b.leaves()
    assert harness.state is ClassicGroupState.PREPARING
    assert a.heartbeat() is ErrorCode.rebalance_in_progress
    assert b.heartbeat() is ErrorCode.unknown_member_id
    a.joins()
    assert harness.noted() == ["b left", "a joined 2 leading a"]


def test_the_last_to_leave_leaves_the_group_empty(harness):
    a, b = harness.clients.values()
    b.leaves()
    a.leaves()
    assert harness.state is ClassicGroupState.EMPTY


def test_who_leaves_during_a_rebalance_is_not_waited_for(harness):
    a, b = harness.clients.values()
    a.joins()
    b.leaves()
    assert harness.noted() == ["a joined 2 leading a", "b left"]


def test_who_leaves_while_it_waits_gets_its_answers(harness):
    _, b = harness.clients.values()
    b.joins(protocols=(("range", b"new"),))
    b.leaves()
    assert harness.noted() == ["b join failed: unknown_member_id", "b left"]


def test_an_id_that_was_only_given_out_can_leave(harness):
    c = harness.join("c", needs_member_id=True)
    harness.noted()
    c.leaves()
    assert harness.noted() == ["c left"]
    c.joins()
    assert harness.noted() == ["c may not join: unknown_member_id"]


def test_many_leave_at_once_each_with_its_outcome(harness):
    a, b = harness.clients.values()
    ids = [a.member_id, "x", "", b.member_id, b.member_id]
    codes = harness.group.leave([LeavingMember(member_id=each) for each in ids])
    unknown = ErrorCode.unknown_member_id
    assert codes == [NONE, unknown, unknown, NONE, unknown]
    assert (harness.state, harness.group.generation_id) == (ClassicGroupState.EMPTY, 2)


def test_when_nobody_could_leave_nothing_happens(harness):
    assert harness.group.leave([LeavingMember(member_id="x")]) == [ErrorCode.unknown_member_id]
    assert harness.state is ClassicGroupState.STABLE


# -- who may commit


def test_members_commit_with_their_generation(harness):
    a = harness.clients["a"]
    assert a.commit() is NONE
    a.generation_id = 0
    assert a.commit() is ErrorCode.illegal_generation
    a.member_id = "x"
    assert a.commit() is ErrorCode.unknown_member_id


def test_members_may_still_commit_when_a_rebalance_begins_but_not_when_it_completes(harness):
    a, b = harness.clients.values()
    a.joins()
    assert b.commit() is NONE
    b.joins()
    assert harness.state is ClassicGroupState.COMPLETING
    assert b.commit() is ErrorCode.rebalance_in_progress
    assert b.commit(is_transactional=True) is NONE
    harness.all_sync()
    assert b.commit() is NONE


def test_a_commit_is_a_sign_of_life(harness):
    a, b = harness.clients.values()
    harness.advance(SESSION_MS - 1)
    assert a.commit() is NONE
    harness.advance(1)
    assert b.heartbeat() is ErrorCode.unknown_member_id
    assert a.heartbeat() is ErrorCode.rebalance_in_progress


def test_strangers_commit_to_empty_groups_only(harness):
    stranger = harness.client("x")
    assert stranger.commit() is ErrorCode.unknown_member_id
    assert stranger.commit(is_transactional=True) is NONE
    harness.advance(SESSION_MS)
    assert stranger.commit() is NONE
    stranger.generation_id = 1
    assert stranger.commit() is ErrorCode.unknown_member_id


# -- the end


def test_whoever_waits_is_told_when_the_group_moves_to_another_broker(harness):
    harness.clients["a"].joins()
    harness.shard.unload()
    assert harness.noted() == ["a join failed: not_coordinator"]
    assert len(harness.timer) == 0


def test_a_dead_group_refuses_everything(harness):
    group, a = harness.group, harness.clients["a"]
    group.unload(CoordinatorNotAvailable)
    harness.shard.groups["g"] = group
    assert a.heartbeat() is a.commit() is ErrorCode.coordinator_not_available
    a.joins()
    a.syncs()
    assert harness.noted() == [f"a may not {what}: coordinator_not_available" for what in ("join", "sync")]
