"""Static members (KIP-345): a restart does not rebalance the group, and the second instance fences the first."""

import pytest
from group_harness import DELAY_MS, NONE, REBALANCE_MS, SESSION_MS, GroupHarness

from headrace.groups.classic.states import ClassicGroupState
from headrace.groups.group import LeavingMember
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def harness():
    """Two static members, settled; "a" leads."""
    harness = GroupHarness()
    harness.join("a", instance_id="A")
    harness.join("b", instance_id="B")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    assert harness.noted()[:2] == ["a joined 1 leading A B", "b joined 1"]
    harness.noted()
    return harness


def restarted(harness, name, **fields):
    """The same instance with another process: it does not know its member id."""
    return harness.client(name, instance_id=harness.clients[name].instance_id, **fields)


def test_a_static_member_is_not_asked_to_come_with_an_id():
    harness = GroupHarness()
    harness.join("a", instance_id="A", needs_member_id=True)
    harness.advance(DELAY_MS)
    assert harness.noted() == ["a joined 1 leading A"]


def test_a_restarted_follower_goes_on_without_a_rebalance(harness):
    old, new = harness.clients["b"], restarted(harness, "b")
    new.joins()
    assert harness.noted() == ["b joined 1"]
    assert (harness.state, new.member_id != old.member_id) == (ClassicGroupState.STABLE, True)
    new.syncs()
    assert harness.noted() == ["b synced part-of-B"]
    new.heartbeats()
    assert old.heartbeat() is ErrorCode.fenced_instance_id
    assert old.commit() is ErrorCode.fenced_instance_id


def test_the_old_one_is_fenced_wherever_it_comes(harness):
    old = harness.clients["b"]
    restarted(harness, "b").joins()
    harness.noted()
    old.joins()
    old.syncs()
    old.leaves()
    assert harness.noted() == [f"b may not {what}: fenced_instance_id" for what in ("join", "sync", "leave")]


def test_a_restarted_leader_that_cannot_skip_the_assignment_is_not_told_that_it_leads(harness):
    old, new = harness.clients["a"], restarted(harness, "a")
    new.joins()
    assert new.answers[-1].leader_id == old.member_id
    assert new.answers[-1].members == ()
    assert harness.group.members.leader_id == new.member_id
    new.syncs()
    assert harness.noted() == ["a joined 1", "a synced part-of-A"]


def test_a_restarted_leader_may_skip_the_assignment(harness):
    new = restarted(harness, "a", may_skip_assignment=True)
    new.joins()
    assert harness.noted() == ["a joined 1 leading A B"]
    assert new.answers[-1].skip_assignment
    new.syncs({})
    assert harness.noted() == ["a synced part-of-A"]
    follower = restarted(harness, "b", may_skip_assignment=True)
    follower.joins()
    assert not follower.answers[-1].skip_assignment


def test_the_new_id_is_written(harness):
    new = restarted(harness, "b")
    new.joins()
    again = harness.reloaded()
    new.heartbeats()
    new.syncs()
    assert again.noted() == ["b synced part-of-B"]


def test_a_restart_with_another_subscription_but_the_same_strategy_keeps_the_generation(harness):
    new = restarted(harness, "b", protocols=(("range", b"other topics"),))
    new.joins()
    assert harness.noted() == ["b joined 1"]


def test_a_restart_that_changes_the_vote_begins_a_rebalance():
    harness = GroupHarness()
    both = (("range", b""), ("sticky", b""))
    a = harness.join("a", instance_id="A", protocols=both)
    harness.join("b", instance_id="B", protocols=both)
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    restarted(harness, "b", protocols=both[1:]).joins()
    assert (harness.state, harness.noted()) == (ClassicGroupState.PREPARING, [])
    a.joins()
    assert harness.noted() == ["a joined 2 leading A B", "b joined 2"]
    assert harness.group.protocol_name == "sticky"


def test_a_restart_while_the_leader_assigns_begins_the_next_rebalance():
    harness = GroupHarness()
    harness.join("a", instance_id="A")
    old = harness.join("b", instance_id="B")
    harness.advance(2 * DELAY_MS)
    old.syncs()
    harness.noted()
    restarted(harness, "b").joins()
    assert harness.noted() == ["b sync failed: fenced_instance_id"]
    assert harness.state is ClassicGroupState.PREPARING
    harness.clients["a"].joins()
    assert harness.noted() == ["a joined 2 leading A B", "b joined 2"]


def test_a_restart_during_a_rebalance_takes_the_old_ones_place(harness):
    harness.clients["a"].joins()
    harness.join("c")
    harness.noted()
    restarted(harness, "a").joins()
    assert harness.noted() == ["a join failed: fenced_instance_id"]
    restarted(harness, "b").joins()
    assert harness.noted() == ["a joined 2 leading A B c", "b joined 2", "c joined 2"]


def test_a_static_member_that_does_not_join_again_keeps_its_place_until_its_session_ends(harness):
    a, b = harness.clients.values()
    b.joins(session_timeout_ms=1_000_000, protocols=(("range", b"1"),))
    a.joins()
    harness.all_sync()
    harness.noted()
    a.joins()
    for _ in range(REBALANCE_MS // 5_000):
        assert harness.noted() == []
        harness.advance(5_000)
    assert harness.noted() == ["a joined 3 leading A B"]


def test_without_anybody_who_joined_the_rebalance_goes_on_waiting(harness):
    a, b = harness.clients.values()
    c = harness.join("c", rebalance_timeout_ms=10_000, session_timeout_ms=1_800_000)
    for each in (a, b):
        each.joins(session_timeout_ms=1_800_000, rebalance_timeout_ms=10_000)
    harness.all_sync()
    harness.noted()
    b.joins(protocols=(("range", b"2"),))
    b.leaves()
    harness.advance(10_000)  # c is out, A has not come, and a group cannot do without a leader
    assert harness.state is ClassicGroupState.PREPARING
    assert c.heartbeat() is ErrorCode.unknown_member_id
    harness.noted()
    a.joins()
    assert harness.noted() == ["a joined 3 leading A"]


def test_a_static_member_whose_session_ends_is_out(harness):
    a, b = harness.clients.values()
    harness.advance(SESSION_MS - 1)
    a.heartbeats()
    harness.advance(1)
    assert b.heartbeat() is ErrorCode.unknown_member_id
    assert harness.state is ClassicGroupState.PREPARING


def test_an_administrator_takes_members_out_by_their_instance(harness):
    codes = harness.group.leave(
        [
            LeavingMember(member_id="", instance_id="B"),
            LeavingMember(member_id="", instance_id="X"),
            LeavingMember(member_id=""),
        ]
    )
    assert codes == [NONE, ErrorCode.unknown_member_id, ErrorCode.unknown_member_id]
    harness.clients["a"].joins()
    assert harness.noted() == ["a joined 2 leading A"]


def test_the_wrong_member_id_for_an_instance_is_fenced(harness):
    code = harness.group.leave([LeavingMember(member_id="x", instance_id="B")])
    assert code == [ErrorCode.fenced_instance_id]
    assert harness.group.leave([LeavingMember(member_id="x", instance_id="X")]) == [ErrorCode.unknown_member_id]
