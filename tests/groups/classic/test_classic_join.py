"""JoinGroup: when a generation begins, which member leads it, and which members may not join."""

import pytest
from group_harness import DELAY_MS, NONE, REBALANCE_MS, GroupHarness

from headrace.groups.classic.states import NEXT, ClassicGroupState
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def harness():
    return GroupHarness()


def test_every_state_can_end_and_nothing_follows_the_end():
    assert all(
        ClassicGroupState.DEAD in NEXT[state] for state in ClassicGroupState if state is not ClassicGroupState.DEAD
    )
    assert not NEXT[ClassicGroupState.DEAD]


def test_a_step_that_is_not_in_the_table_raises_and_changes_nothing(harness):
    harness.join("a")
    harness.settles()
    with pytest.raises(AssertionError):
        harness.group.metadata.transition_to(ClassicGroupState.COMPLETING, 0)
    assert harness.state is ClassicGroupState.STABLE


def test_the_first_generation_waits_for_more_members(harness):
    harness.join("a", "b")
    assert (harness.state, harness.events) == (ClassicGroupState.PREPARING, [])
    harness.advance(DELAY_MS - 1)
    assert harness.noted() == []
    harness.advance(DELAY_MS + 1)
    assert harness.noted() == ["a joined 1 leading a b", "b joined 1"]
    assert harness.state is ClassicGroupState.COMPLETING


def test_a_group_of_one_waits_once(harness):
    harness.join("a")
    harness.advance(DELAY_MS)
    assert harness.noted() == ["a joined 1 leading a"]


def test_the_wait_is_extended_while_members_come(harness):
    harness.join("a")
    harness.advance(DELAY_MS - 1)
    harness.join("b")
    harness.advance(1)
    assert harness.noted() == []
    harness.advance(DELAY_MS - 1)
    harness.join("c")
    harness.advance(1)
    assert harness.noted() == []
    harness.advance(DELAY_MS)
    assert harness.noted() == ["a joined 1 leading a b c", "b joined 1", "c joined 1"]


def test_the_wait_is_not_extended_past_the_rebalance_timeout(harness):
    harness.join("m0", rebalance_timeout_ms=10_000)
    waited_ms = 0
    while not harness.events:
        harness.join(f"m{len(harness.clients)}", rebalance_timeout_ms=10_000)
        harness.advance(1_000)
        waited_ms += 1_000
    assert waited_ms == 10_000


def test_without_a_delay_the_first_member_is_in_at_once():
    harness = GroupHarness(group_initial_rebalance_delay_ms=0)
    harness.join("a")
    harness.advance(0)
    assert harness.noted() == ["a joined 1 leading a"]


def test_a_new_member_may_have_to_ask_for_its_id_first(harness):
    a = harness.join("a", needs_member_id=True)
    assert harness.noted() == ["a join failed: member_id_required"]
    assert a.member_id.startswith("a-")
    assert harness.state is ClassicGroupState.EMPTY
    a.joins()
    harness.advance(DELAY_MS)
    assert harness.noted() == ["a joined 1 leading a"]


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout(harness):
    a = harness.join("a", needs_member_id=True, session_timeout_ms=6_000)
    harness.advance(5_999)
    assert len(harness.group.members.pending_ids) == 1
    harness.advance(1)
    assert not harness.group.members.pending_ids
    harness.noted()
    a.joins()
    assert harness.noted() == ["a may not join: unknown_member_id"]


def test_a_rebalance_waits_for_those_who_were_given_an_id(harness):
    a = harness.join("a")
    harness.settles()
    b = harness.join("b", needs_member_id=True)
    c = harness.join("c", needs_member_id=True)
    b.joins()
    harness.noted()
    a.joins()
    assert harness.noted() == []
    c.joins()
    assert harness.noted() == ["a joined 2 leading a b c", "b joined 2", "c joined 2"]


def test_a_rebalance_does_not_wait_longer_for_an_id_than_it_is_good_for(harness):
    a = harness.join("a")
    harness.settles()
    harness.client("c", needs_member_id=True, session_timeout_ms=6_000).joins()
    harness.join("b")
    harness.noted()
    a.joins()
    assert harness.noted() == []
    harness.advance(6_000)
    assert harness.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_an_id_of_somebody_else_is_unknown(harness):
    harness.join("a")
    stranger = harness.client("x")
    stranger.member_id = "never-given"
    stranger.joins()
    assert harness.noted() == ["x may not join: unknown_member_id"]


def test_a_group_is_not_made_by_who_says_to_be_in_it_already(harness):
    stranger = harness.client("x")
    stranger.member_id = "of-old"
    stranger.joins()
    assert harness.noted() == ["x may not join: unknown_member_id"]
    assert harness.group is None


@pytest.mark.parametrize(
    ("timeout_ms", "is_fine"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)]
)
def test_session_timeouts_have_bounds(harness, timeout_ms, is_fine):
    harness.join("a", session_timeout_ms=timeout_ms)
    assert harness.noted() == ([] if is_fine else ["a may not join: invalid_session_timeout"])
    assert (harness.group is not None) == is_fine


@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_speak_something(harness, fields):
    harness.join("a", **fields)
    assert harness.noted() == ["a may not join: inconsistent_group_protocol"]
    assert harness.group is None


@pytest.mark.parametrize("fields", [{"protocols": (("sticky", b""),)}, {"protocol_type": "connect"}])
def test_members_must_have_something_in_common(harness, fields):
    harness.join("a")
    harness.join("b", **fields)
    assert harness.noted() == ["b may not join: inconsistent_group_protocol"]
    assert len(harness.group.members) == 1


def test_the_vote_on_the_strategy(harness):
    """Candidates are what all support; each votes for its first; the most votes win."""
    for name, names in [("a", "x b r"), ("b", "r b"), ("c", "b r y"), ("d", "b r")]:
        harness.join(name, protocols=tuple((each, f"{name} {each}".encode()) for each in names.split()))
    harness.advance(2 * DELAY_MS)
    a = harness.clients["a"]
    assert a.answers[-1].protocol_name == "b"
    assert [metadata for _, _, metadata in a.answers[-1].members] == [b"a b", b"b b", b"c b", b"d b"]


def test_of_equals_the_one_that_was_voted_for_first_wins(harness):
    harness.join("a", protocols=(("r", b""), ("b", b"")))
    harness.join("b", protocols=(("b", b""), ("r", b"")))
    harness.advance(2 * DELAY_MS)
    assert harness.group.protocol_name == "r"


def test_a_group_that_is_full_takes_nobody_else():
    harness = GroupHarness(group_max_size=2)
    harness.join("a", "b", "c")
    assert harness.noted() == ["c may not join: group_max_size_reached"]
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    harness.clients["c"].joins()
    assert harness.noted() == ["c may not join: group_max_size_reached"]
    harness.clients["a"].leaves()
    harness.clients["c"].joins()
    harness.clients["b"].joins()
    assert harness.noted() == ["a left", "b joined 2 leading b c", "c joined 2"]


def test_in_a_rebalance_places_go_to_who_comes_first():
    harness = GroupHarness(group_max_size=2)
    a, b = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    a.joins()  # the leader wants a rebalance
    c = harness.join("c")
    b.joins()
    assert harness.noted() == ["a joined 2 leading a c", "c joined 2", "b may not join: group_max_size_reached"]
    assert c.is_in


def test_who_does_not_join_again_in_time_is_out(harness):
    a, b = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    a.joins()
    for _ in range(REBALANCE_MS // 5_000):
        assert b.heartbeat() is ErrorCode.rebalance_in_progress
        assert harness.noted() == []
        harness.advance(5_000)
    assert harness.noted() == ["a joined 2 leading a"]
    assert b.heartbeat() is ErrorCode.unknown_member_id


def test_the_slowest_member_decides_how_long_a_rebalance_waits(harness):
    a = harness.join("a", rebalance_timeout_ms=1_000, session_timeout_ms=1_800_000)
    b = harness.join("b", rebalance_timeout_ms=100_000, session_timeout_ms=1_800_000)
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    a.joins()
    harness.noted()
    harness.advance(99_999)
    assert harness.noted() == []
    harness.advance(1)
    assert harness.noted() == ["a joined 2 leading a"]
    assert b.heartbeat() is ErrorCode.unknown_member_id


def test_a_leader_that_does_not_come_back_is_replaced(harness):
    a, b, c = harness.join("a", "b", "c")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    a.leaves()
    c.joins()
    b.joins()
    assert harness.noted() == ["a left", "b joined 2 leading b c", "c joined 2"]


def test_a_follower_that_joins_for_no_reason_is_told_the_generation_again(harness):
    _, b = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    b.joins()
    assert harness.noted() == ["b joined 1"]
    assert harness.state is ClassicGroupState.STABLE


def test_a_leader_that_joins_wants_a_rebalance(harness):
    a, b = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    a.joins()
    assert harness.state is ClassicGroupState.PREPARING
    assert b.heartbeat() is ErrorCode.rebalance_in_progress
    b.joins()
    assert harness.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_a_follower_with_another_subscription_begins_a_rebalance(harness):
    a, b = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    b.joins(protocols=(("range", b"other topics"),))
    assert harness.state is ClassicGroupState.PREPARING
    a.joins()
    assert harness.noted() == ["a joined 2 leading a b", "b joined 2"]
    assert a.answers[-1].members[1][2] == b"other topics"


def test_a_join_that_is_repeated_before_all_have_synced_gets_the_same_answer(harness):
    a, b = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.noted()
    a.joins()
    b.joins()
    assert harness.noted() == ["a joined 1 leading a b", "b joined 1"]
    assert harness.state is ClassicGroupState.COMPLETING


def test_another_subscription_before_all_have_synced_begins_the_next_rebalance(harness):
    a, b, c = harness.join("a", "b", "c")
    harness.advance(2 * DELAY_MS)
    harness.noted()
    c.syncs()
    b.joins(protocols=(("range", b"other topics"),))
    assert harness.noted() == ["c sync failed: rebalance_in_progress"]
    a.joins()
    c.joins()
    assert harness.noted() == ["a joined 2 leading a b c", "b joined 2", "c joined 2"]


def test_a_join_that_is_repeated_while_it_waits_answers_the_first_one_too(harness):
    a, _ = harness.join("a", "b")
    harness.advance(2 * DELAY_MS)
    harness.all_sync()
    harness.noted()
    a.joins()
    a.joins()
    assert harness.noted() == ["a join failed: rebalance_in_progress"]
    assert a.heartbeat() is ErrorCode.rebalance_in_progress


def test_a_new_member_that_waits_too_long_for_its_first_answer_is_given_up(harness):
    """It cannot be heard of meanwhile: its client may have gone, and come back as another."""
    harness.join("a", rebalance_timeout_ms=1_000_000)
    harness.settles()
    harness.join("b", rebalance_timeout_ms=1_000_000)
    harness.noted()
    for _ in range(60):
        harness.clients["a"].heartbeat()
        harness.advance(5_000)
    assert harness.noted() == ["b join failed: unknown_member_id"]
    assert harness.clients["a"].commit() is NONE


def test_generations_only_grow(harness):
    a = harness.join("a")
    harness.settles()
    a.leaves()
    assert (harness.state, harness.group.generation_id) == (ClassicGroupState.EMPTY, 2)
    a.member_id = ""
    a.joins()
    harness.advance(DELAY_MS)
    assert a.generation_id == 3
