"""Static members (KIP-345): started anew without troubling the others, and fenced when there are two."""

import pytest
from groupbed import DELAY_MS, NONE, REBALANCE_MS, SESSION_MS, GroupBed

from headrace.groups.group import Leaving
from headrace.groups.states import State
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def bed():
    """Two static members, settled; "a" leads."""
    bed = GroupBed()
    bed.join("a", instance_id="A")
    bed.join("b", instance_id="B")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    assert bed.noted()[:2] == ["a joined 1 leading A B", "b joined 1"]
    bed.noted()
    return bed


def restarted(bed, name, **fields):
    """The same instance with another process: it does not know its member id."""
    return bed.client(name, instance_id=bed.clients[name].instance_id, **fields)


def test_a_static_member_is_not_asked_to_come_with_an_id():
    bed = GroupBed()
    bed.join("a", instance_id="A", needs_member_id=True)
    bed.advance(DELAY_MS)
    assert bed.noted() == ["a joined 1 leading A"]


def test_a_restarted_follower_goes_on_without_a_rebalance(bed):
    old, new = bed.clients["b"], restarted(bed, "b")
    new.joins()
    assert bed.noted() == ["b joined 1"]
    assert (bed.state, new.member_id != old.member_id) == (State.STABLE, True)
    new.syncs()
    assert bed.noted() == ["b synced part-of-B"]
    new.heartbeats()
    assert old.heartbeat() is ErrorCode.fenced_instance_id
    assert old.commit() is ErrorCode.fenced_instance_id


def test_the_old_one_is_fenced_wherever_it_comes(bed):
    old = bed.clients["b"]
    restarted(bed, "b").joins()
    bed.noted()
    old.joins()
    old.syncs()
    old.leaves()
    assert bed.noted() == [f"b may not {what}: fenced_instance_id" for what in ("join", "sync", "leave")]


def test_a_restarted_leader_that_cannot_skip_the_assignment_is_not_told_that_it_leads(bed):
    old, new = bed.clients["a"], restarted(bed, "a")
    new.joins()
    assert new.answers[-1].leader_id == old.member_id
    assert new.answers[-1].members == ()
    assert bed.group.members.leader_id == new.member_id
    new.syncs()
    assert bed.noted() == ["a joined 1", "a synced part-of-A"]


def test_a_restarted_leader_may_skip_the_assignment(bed):
    new = restarted(bed, "a", may_skip_assignment=True)
    new.joins()
    assert bed.noted() == ["a joined 1 leading A B"]
    assert new.answers[-1].skip_assignment
    new.syncs({})
    assert bed.noted() == ["a synced part-of-A"]
    follower = restarted(bed, "b", may_skip_assignment=True)
    follower.joins()
    assert not follower.answers[-1].skip_assignment


def test_the_new_id_is_written(bed):
    new = restarted(bed, "b")
    new.joins()
    again = bed.reloaded()
    new.heartbeats()
    new.syncs()
    assert again.noted() == ["b synced part-of-B"]


def test_a_restart_with_another_subscription_but_the_same_strategy_keeps_the_generation(bed):
    new = restarted(bed, "b", protocols=(("range", b"other topics"),))
    new.joins()
    assert bed.noted() == ["b joined 1"]


def test_a_restart_that_changes_the_vote_begins_a_rebalance():
    bed = GroupBed()
    both = (("range", b""), ("sticky", b""))
    a = bed.join("a", instance_id="A", protocols=both)
    bed.join("b", instance_id="B", protocols=both)
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    restarted(bed, "b", protocols=both[1:]).joins()
    assert (bed.state, bed.noted()) == (State.PREPARING, [])
    a.joins()
    assert bed.noted() == ["a joined 2 leading A B", "b joined 2"]
    assert bed.group.protocol_name == "sticky"


def test_a_restart_while_the_leader_assigns_begins_the_next_rebalance():
    bed = GroupBed()
    bed.join("a", instance_id="A")
    old = bed.join("b", instance_id="B")
    bed.advance(2 * DELAY_MS)
    old.syncs()
    bed.noted()
    restarted(bed, "b").joins()
    assert bed.noted() == ["b sync failed: fenced_instance_id"]
    assert bed.state is State.PREPARING
    bed.clients["a"].joins()
    assert bed.noted() == ["a joined 2 leading A B", "b joined 2"]


def test_a_restart_during_a_rebalance_takes_the_old_ones_place(bed):
    bed.clients["a"].joins()
    bed.join("c")
    bed.noted()
    restarted(bed, "a").joins()
    assert bed.noted() == ["a join failed: fenced_instance_id"]
    restarted(bed, "b").joins()
    assert bed.noted() == ["a joined 2 leading A B c", "b joined 2", "c joined 2"]


def test_a_static_member_that_does_not_join_again_keeps_its_place_until_its_session_ends(bed):
    a, b = bed.clients.values()
    b.joins(session_timeout_ms=1_000_000, protocols=(("range", b"1"),))
    a.joins()
    bed.all_sync()
    bed.noted()
    a.joins()
    for _ in range(REBALANCE_MS // 5_000):
        assert bed.noted() == []
        bed.advance(5_000)
    assert bed.noted() == ["a joined 3 leading A B"]


def test_without_anybody_who_joined_the_rebalance_goes_on_waiting(bed):
    a, b = bed.clients.values()
    c = bed.join("c", rebalance_timeout_ms=10_000, session_timeout_ms=1_800_000)
    for each in (a, b):
        each.joins(session_timeout_ms=1_800_000, rebalance_timeout_ms=10_000)
    bed.all_sync()
    bed.noted()
    b.joins(protocols=(("range", b"2"),))
    b.leaves()
    bed.advance(10_000)  # c is out, A has not come, and a group cannot do without a leader
    assert bed.state is State.PREPARING
    assert c.heartbeat() is ErrorCode.unknown_member_id
    bed.noted()
    a.joins()
    assert bed.noted() == ["a joined 3 leading A"]


def test_a_static_member_whose_session_ends_is_out(bed):
    a, b = bed.clients.values()
    bed.advance(SESSION_MS - 1)
    a.heartbeats()
    bed.advance(1)
    assert b.heartbeat() is ErrorCode.unknown_member_id
    assert bed.state is State.PREPARING


def test_an_administrator_takes_members_out_by_their_instance(bed):
    codes = bed.group.leave(
        [Leaving(member_id="", instance_id="B"), Leaving(member_id="", instance_id="X"), Leaving(member_id="")]
    )
    assert codes == [NONE, ErrorCode.unknown_member_id, ErrorCode.unknown_member_id]
    bed.clients["a"].joins()
    assert bed.noted() == ["a joined 2 leading A"]


def test_the_wrong_member_id_for_an_instance_is_fenced(bed):
    code = bed.group.leave([Leaving(member_id="x", instance_id="B")])
    assert code == [ErrorCode.fenced_instance_id]
    assert bed.group.leave([Leaving(member_id="x", instance_id="X")]) == [ErrorCode.unknown_member_id]
