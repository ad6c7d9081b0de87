"""SyncGroup: the leader's word reaches all, and what keeps it from that."""

import pytest
from groupbed import DELAY_MS, REBALANCE_MS, GroupBed

from headrace.groups.states import State
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def bed():
    """Three members that have joined and not synced yet."""
    bed = GroupBed()
    bed.join("a", "b", "c")
    bed.advance(2 * DELAY_MS)
    assert bed.noted() == ["a joined 1 leading a b c", "b joined 1", "c joined 1"]
    return bed


def test_all_are_told_when_the_leader_syncs(bed):
    bed.clients["c"].syncs()
    assert (bed.noted(), bed.state) == ([], State.COMPLETING)
    bed.clients["a"].syncs()
    assert bed.noted() == ["a synced part-of-a", "c synced part-of-c"]
    assert bed.state is State.STABLE
    bed.clients["b"].syncs()
    assert bed.noted() == ["b synced part-of-b"]


def test_who_is_not_assigned_anything_is_told_so(bed):
    bed.clients["b"].syncs()
    bed.clients["a"].syncs({"somebody": b"else"})
    assert bed.noted() == ["a synced ", "b synced "]


def test_a_sync_can_be_repeated(bed):
    bed.all_sync()
    bed.noted()
    bed.clients["b"].syncs()
    bed.clients["a"].syncs({})
    assert bed.noted() == ["b synced part-of-b", "a synced part-of-a"]


def test_a_sync_that_is_repeated_while_it_waits_answers_the_first_one_too(bed):
    bed.clients["b"].syncs().syncs()
    assert bed.noted() == ["b sync failed: rebalance_in_progress"]
    bed.clients["a"].syncs()
    assert bed.noted() == ["a synced part-of-a", "b synced part-of-b"]


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
def test_who_may_not_sync(bed, fields, error):
    bed.clients["a"].syncs(**fields)
    assert bed.noted() == [f"a may not sync: {error}"]
    assert bed.state is State.COMPLETING


def test_right_protocols_are_right(bed):
    bed.clients["a"].syncs(protocol_type="consumer", protocol_name="range")
    assert bed.noted() == ["a synced part-of-a"]


def test_a_rebalance_takes_the_sync_away(bed):
    b = bed.clients["b"].syncs()
    bed.clients["c"].leaves()
    assert bed.noted() == ["b sync failed: rebalance_in_progress", "c left"]
    b.syncs()
    assert bed.noted() == ["b may not sync: rebalance_in_progress"]


def test_who_does_not_sync_in_time_is_out(bed):
    a, b, c = bed.clients.values()
    a.syncs()
    b.syncs()
    bed.noted()
    for _ in range(REBALANCE_MS // 5_000):
        for each in (a, b, c):
            each.heartbeats()
        bed.advance(5_000)
    assert bed.state is State.PREPARING
    assert c.heartbeat() is ErrorCode.unknown_member_id
    a.joins()
    b.joins()
    assert bed.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_a_leader_that_does_not_sync_in_time_is_out(bed):
    a, b, c = bed.clients.values()
    b.syncs()
    c.syncs()
    for _ in range(REBALANCE_MS // 5_000):
        a.heartbeats()
        assert bed.noted() == []
        bed.advance(5_000)
    assert bed.noted() == ["b sync failed: rebalance_in_progress", "c sync failed: rebalance_in_progress"]
    b.joins()
    c.joins()
    assert bed.noted() == ["b joined 2 leading b c", "c joined 2"]


def test_when_all_have_synced_nobody_is_thrown_out(bed):
    bed.all_sync()
    for _ in range(2 * REBALANCE_MS // 5_000):
        for each in bed.clients.values():
            each.heartbeats()
        bed.advance(5_000)
    assert bed.state is State.STABLE


def test_an_assignment_that_cannot_be_written_is_told_to_nobody(bed):
    bed.clients["b"].syncs()
    bed.journal.is_broken = True
    bed.clients["a"].syncs()
    assert bed.noted() == ["a sync failed: not_coordinator", "b sync failed: not_coordinator"]
    assert bed.state is State.PREPARING
    bed.journal.is_broken = False
    for client in bed.clients.values():
        client.joins()
    assert bed.noted() == ["a joined 2 leading a b c", "b joined 2", "c joined 2"]
