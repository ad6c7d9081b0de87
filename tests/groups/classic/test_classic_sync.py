"""SyncGroup: every member gets the leader's assignment, and the cases in which it does not."""

import pytest
from group_harness import DELAY_MS, REBALANCE_MS, GroupHarness

from headrace.groups.classic.states import ClassicGroupState
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def harness():
    """Three members that have joined and not synced yet."""
    harness = GroupHarness()
    harness.join("a", "b", "c")
    harness.advance(2 * DELAY_MS)
    assert harness.noted() == ["a joined 1 leading a b c", "b joined 1", "c joined 1"]
    return harness


def test_all_are_told_when_the_leader_syncs(harness):
    harness.clients["c"].syncs()
    assert (harness.noted(), harness.state) == ([], ClassicGroupState.COMPLETING)
    harness.clients["a"].syncs()
    assert harness.noted() == ["a synced part-of-a", "c synced part-of-c"]
    assert harness.state is ClassicGroupState.STABLE
    harness.clients["b"].syncs()
    assert harness.noted() == ["b synced part-of-b"]


def test_who_is_not_assigned_anything_is_told_so(harness):
    harness.clients["b"].syncs()
    harness.clients["a"].syncs({"somebody": b"else"})
    assert harness.noted() == ["a synced ", "b synced "]


def test_a_sync_can_be_repeated(harness):
    harness.all_sync()
    harness.noted()
    harness.clients["b"].syncs()
    harness.clients["a"].syncs({})
    assert harness.noted() == ["b synced part-of-b", "a synced part-of-a"]


def test_a_sync_that_is_repeated_while_it_waits_answers_the_first_one_too(harness):
    harness.clients["b"].syncs().syncs()
    assert harness.noted() == ["b sync failed: rebalance_in_progress"]
    harness.clients["a"].syncs()
    assert harness.noted() == ["a synced part-of-a", "b synced part-of-b"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "x"}, "unknown_member_id"),
        ({"generation_id": 0}, "illegal_generation"),
        ({"generation_id": 2}, "illegal_generation"),
        ({"protocol_type": "connect"}, "inconsistent_group_protocol"),
        ({"protocol_name": "sticky"}, "inconsistent_group_protocol"),
    ],
    ids=str,
)
def test_who_may_not_sync(harness, fields, error):
    harness.clients["a"].syncs(**fields)
    assert harness.noted() == [f"a may not sync: {error}"]
    assert harness.state is ClassicGroupState.COMPLETING


def test_right_protocols_are_right(harness):
    harness.clients["a"].syncs(protocol_type="consumer", protocol_name="range")
    assert harness.noted() == ["a synced part-of-a"]


def test_a_rebalance_takes_the_sync_away(harness):
    b = harness.clients["b"].syncs()
    harness.clients["c"].leaves()
    assert harness.noted() == ["b sync failed: rebalance_in_progress", "c left"]
    b.syncs()
    assert harness.noted() == ["b may not sync: rebalance_in_progress"]


def test_who_does_not_sync_in_time_is_out(harness):
    a, b, c = harness.clients.values()
    a.syncs()
    b.syncs()
    harness.noted()
    for _ in range(REBALANCE_MS // 5_000):
        for each in (a, b, c):
            each.heartbeats()
        harness.advance(5_000)
    assert harness.state is ClassicGroupState.PREPARING
    assert c.heartbeat() is ErrorCode.unknown_member_id
    a.joins()
    b.joins()
    assert harness.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_a_leader_that_does_not_sync_in_time_is_out(harness):
    a, b, c = harness.clients.values()
    b.syncs()
    c.syncs()
    for _ in range(REBALANCE_MS // 5_000):
        a.heartbeats()
        assert harness.noted() == []
        harness.advance(5_000)
    assert harness.noted() == ["b sync failed: rebalance_in_progress", "c sync failed: rebalance_in_progress"]
    b.joins()
    c.joins()
    assert harness.noted() == ["b joined 2 leading b c", "c joined 2"]


def test_when_all_have_synced_nobody_is_thrown_out(harness):
    harness.all_sync()
    for _ in range(2 * REBALANCE_MS // 5_000):
        for each in harness.clients.values():
            each.heartbeats()
        harness.advance(5_000)
    assert harness.state is ClassicGroupState.STABLE


def test_an_assignment_that_cannot_be_written_is_told_to_nobody(harness):
    harness.clients["b"].syncs()
    harness.journal.is_broken = True
    harness.clients["a"].syncs()
    assert harness.noted() == ["a sync failed: not_coordinator", "b sync failed: not_coordinator"]
    assert harness.state is ClassicGroupState.PREPARING
    harness.journal.is_broken = False
    for client in harness.clients.values():
        client.joins()
    assert harness.noted() == ["a joined 2 leading a b c", "b joined 2", "c joined 2"]
