"""Heartbeat, LeaveGroup and silence: how a group learns that a member is gone."""

import pytest
from groupbed import DELAY_MS, NONE, SESSION_MS, GroupBed

from headrace.groups.group import Leaving
from headrace.groups.states import State
from headrace.protocol.errors import CoordinatorNotAvailable, ErrorCode


@pytest.fixture
def bed():
    """Two members, settled."""
    bed = GroupBed()
    bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    return bed


def test_a_crashed_member_is_noticed_after_its_session_timeout(bed):
    alive, crashed = bed.clients["a"], bed.clients["b"]
    bed.advance(SESSION_MS - 1)
    assert bed.state is State.STABLE
    alive.heartbeats()
    bed.advance(1)
    assert bed.state is State.PREPARING
    assert alive.heartbeat() is ErrorCode.rebalance_in_progress
    assert crashed.heartbeat() is ErrorCode.unknown_member_id
    alive.joins()
    assert bed.noted() == ["a joined 2 leading a"]


def test_a_group_whose_members_all_crash_is_empty(bed):
    bed.advance(SESSION_MS)
    assert bed.state is State.EMPTY
    assert bed.group.is_empty


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [("x", 1, "unknown_member_id"), (None, 0, "illegal_generation"), (None, 2, "illegal_generation")],
)
def test_whose_heartbeats_are_refused(bed, member_id, generation_id, error):
    a = bed.clients["a"]
    a.member_id, a.generation_id = member_id or a.member_id, generation_id
    assert a.heartbeat() is ErrorCode[error]


def test_a_heartbeat_before_the_sync_is_fine():
    bed = GroupBed()
    a = bed.join("a")
    bed.advance(DELAY_MS)
    assert bed.state is State.COMPLETING
    a.heartbeats()


def test_heartbeats_keep_a_member_alive_while_a_rebalance_waits_for_it(bed):
    a, b = bed.clients.values()
    a.joins()
    for _ in range(5):
        bed.advance(SESSION_MS - 1)
        assert b.heartbeat() is ErrorCode.rebalance_in_progress
    b.joins()
    assert bed.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_a_session_does_not_end_while_its_member_waits_for_us(bed):
    a, b = bed.clients.values()
    a.joins()
    for _ in range(4):
        bed.advance(SESSION_MS - 1)
        b.heartbeat()
    b.joins()
    b.syncs()
    for _ in range(4):
        bed.advance(SESSION_MS - 1)
        a.heartbeats()
    a.syncs()
    assert bed.noted() == ["a joined 2 leading a b", "b joined 2", "a synced part-of-a", "b synced part-of-b"]
    bed.advance(SESSION_MS - 1)
    b.heartbeats()


def test_a_session_begins_anew_with_each_answer(bed):
    a, b = bed.clients.values()
    a.joins()
    bed.advance(SESSION_MS - 1)
    b.joins()
    bed.advance(SESSION_MS - 1)
    assert bed.state is State.COMPLETING
    assert len(bed.group.members) == 2


def test_who_leaves_is_gone_at_once(bed):
    a, b = bed.clients.values()
    b.leaves()
    assert bed.state is State.PREPARING
    assert a.heartbeat() is ErrorCode.rebalance_in_progress
    assert b.heartbeat() is ErrorCode.unknown_member_id
    a.joins()
    assert bed.noted() == ["b left", "a joined 2 leading a"]


def test_the_last_to_leave_leaves_the_group_empty(bed):
    a, b = bed.clients.values()
    b.leaves()
    a.leaves()
    assert bed.state is State.EMPTY


def test_who_leaves_during_a_rebalance_is_not_waited_for(bed):
    a, b = bed.clients.values()
    a.joins()
    b.leaves()
    assert bed.noted() == ["a joined 2 leading a", "b left"]


def test_who_leaves_while_it_waits_gets_its_answers(bed):
    _, b = bed.clients.values()
    b.joins(protocols=(("range", b"new"),))
    b.leaves()
    assert bed.noted() == ["b join failed: unknown_member_id", "b left"]


def test_an_id_that_was_only_given_out_can_leave(bed):
    c = bed.join("c", needs_member_id=True)
    bed.noted()
    c.leaves()
    assert bed.noted() == ["c left"]
    c.joins()
    assert bed.noted() == ["c may not join: unknown_member_id"]


def test_many_leave_at_once_each_with_its_outcome(bed):
    a, b = bed.clients.values()
    ids = [a.member_id, "x", "", b.member_id, b.member_id]
    codes = bed.group.leave([Leaving(member_id=each) for each in ids])
    unknown = ErrorCode.unknown_member_id
    assert codes == [NONE, unknown, unknown, NONE, unknown]
    assert (bed.state, bed.group.generation_id) == (State.EMPTY, 2)


def test_when_nobody_could_leave_nothing_happens(bed):
    assert bed.group.leave([Leaving(member_id="x")]) == [ErrorCode.unknown_member_id]
    assert bed.state is State.STABLE


# -- who may commit


def test_members_commit_with_their_generation(bed):
    a = bed.clients["a"]
    assert a.commit() is NONE
    a.generation_id = 0
    assert a.commit() is ErrorCode.illegal_generation
    a.member_id = "x"
    assert a.commit() is ErrorCode.unknown_member_id


def test_members_may_still_commit_when_a_rebalance_begins_but_not_when_it_completes(bed):
    a, b = bed.clients.values()
    a.joins()
    assert b.commit() is NONE
    b.joins()
    assert bed.state is State.COMPLETING
    assert b.commit() is ErrorCode.rebalance_in_progress
    assert b.commit(is_transactional=True) is NONE
    bed.all_sync()
    assert b.commit() is NONE


def test_a_commit_is_a_sign_of_life(bed):
    a, b = bed.clients.values()
    bed.advance(SESSION_MS - 1)
    assert a.commit() is NONE
    bed.advance(1)
    assert b.heartbeat() is ErrorCode.unknown_member_id
    assert a.heartbeat() is ErrorCode.rebalance_in_progress


def test_strangers_commit_to_empty_groups_only(bed):
    stranger = bed.client("x")
    assert stranger.commit() is ErrorCode.unknown_member_id
    assert stranger.commit(is_transactional=True) is NONE
    bed.advance(SESSION_MS)
    assert stranger.commit() is NONE
    stranger.generation_id = 1
    assert stranger.commit() is ErrorCode.unknown_member_id


# -- the end


def test_whoever_waits_is_told_when_the_group_moves_to_another_broker(bed):
    bed.clients["a"].joins()
    bed.shard.close()
    assert bed.noted() == ["a join failed: not_coordinator"]
    assert len(bed.timer) == 0


def test_a_dead_group_refuses_everything(bed):
    group, a = bed.group, bed.clients["a"]
    group.close(CoordinatorNotAvailable)
    bed.shard.groups["g"] = group
    assert a.heartbeat() is a.commit() is ErrorCode.coordinator_not_available
    a.joins()
    a.syncs()
    assert bed.noted() == [f"a may not {what}: coordinator_not_available" for what in ("join", "sync")]
