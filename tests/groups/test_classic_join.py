"""JoinGroup: when a generation begins, who leads it, who may not be in it."""

import pytest
from groupbed import DELAY_MS, NONE, REBALANCE_MS, GroupBed

from headrace.groups.states import NEXT, State
from headrace.protocol.errors import ErrorCode


@pytest.fixture
def bed():
    return GroupBed()


def test_every_state_can_end_and_nothing_follows_the_end():
    assert all(State.DEAD in NEXT[state] for state in State if state is not State.DEAD)
    assert not NEXT[State.DEAD]


def test_a_step_that_is_not_in_the_table_raises_and_changes_nothing(bed):
    bed.join("a")
    bed.settles()
    with pytest.raises(AssertionError):
        bed.group._move(State.COMPLETING)
    assert bed.state is State.STABLE


def test_the_first_generation_waits_for_more_members(bed):
    bed.join("a", "b")
    assert (bed.state, bed.events) == (State.PREPARING, [])
    bed.advance(DELAY_MS - 1)
    assert bed.noted() == []
    bed.advance(DELAY_MS + 1)
    assert bed.noted() == ["a joined 1 leading a b", "b joined 1"]
    assert bed.state is State.COMPLETING


def test_a_group_of_one_waits_once(bed):
    bed.join("a")
    bed.advance(DELAY_MS)
    assert bed.noted() == ["a joined 1 leading a"]


def test_the_wait_is_extended_while_members_come(bed):
    bed.join("a")
    bed.advance(DELAY_MS - 1)
    bed.join("b")
    bed.advance(1)
    assert bed.noted() == []
    bed.advance(DELAY_MS - 1)
    bed.join("c")
    bed.advance(1)
    assert bed.noted() == []
    bed.advance(DELAY_MS)
    assert bed.noted() == ["a joined 1 leading a b c", "b joined 1", "c joined 1"]


def test_the_wait_is_not_extended_past_the_rebalance_timeout(bed):
    bed.join("m0", rebalance_timeout_ms=10_000)
    waited_ms = 0
    while not bed.events:
        bed.join(f"m{len(bed.clients)}", rebalance_timeout_ms=10_000)
        bed.advance(1_000)
        waited_ms += 1_000
    assert waited_ms == 10_000


def test_without_a_delay_the_first_member_is_in_at_once():
    bed = GroupBed(group_initial_rebalance_delay_ms=0)
    bed.join("a")
    bed.advance(0)
    assert bed.noted() == ["a joined 1 leading a"]


def test_a_new_member_may_have_to_ask_for_its_id_first(bed):
    a = bed.join("a", needs_member_id=True)
    assert bed.noted() == ["a join failed: member_id_required"]
    assert a.member_id.startswith("a-")
    assert bed.state is State.EMPTY
    a.joins()
    bed.advance(DELAY_MS)
    assert bed.noted() == ["a joined 1 leading a"]


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout(bed):
    a = bed.join("a", needs_member_id=True, session_timeout_ms=6_000)
    bed.advance(5_999)
    assert len(bed.group.members.promised) == 1
    bed.advance(1)
    assert not bed.group.members.promised
    bed.noted()
    a.joins()
    assert bed.noted() == ["a may not join: unknown_member_id"]


def test_a_rebalance_waits_for_those_who_were_given_an_id(bed):
    a = bed.join("a")
    bed.settles()
    b = bed.join("b", needs_member_id=True)
    c = bed.join("c", needs_member_id=True)
    b.joins()
    bed.noted()
    a.joins()
    assert bed.noted() == []
    c.joins()
    assert bed.noted() == ["a joined 2 leading a b c", "b joined 2", "c joined 2"]


def test_a_rebalance_does_not_wait_longer_for_an_id_than_it_is_good_for(bed):
    a = bed.join("a")
    bed.settles()
    bed.client("c", needs_member_id=True, session_timeout_ms=6_000).joins()
    bed.join("b")
    bed.noted()
    a.joins()
    assert bed.noted() == []
    bed.advance(6_000)
    assert bed.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_an_id_of_somebody_else_is_unknown(bed):
    bed.join("a")
    stranger = bed.client("x")
    stranger.member_id = "never-given"
    stranger.joins()
    assert bed.noted() == ["x may not join: unknown_member_id"]


def test_a_group_is_not_made_by_who_says_to_be_in_it_already(bed):
    stranger = bed.client("x")
    stranger.member_id = "of-old"
    stranger.joins()
    assert bed.noted() == ["x may not join: unknown_member_id"]
    assert bed.group is None


@pytest.mark.parametrize(
    ("timeout_ms", "is_fine"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)]
)
def test_session_timeouts_have_bounds(bed, timeout_ms, is_fine):
    bed.join("a", session_timeout_ms=timeout_ms)
    assert bed.noted() == ([] if is_fine else ["a may not join: invalid_session_timeout"])
    assert (bed.group is not None) == is_fine


@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}])
def test_the_first_member_must_speak_something(bed, fields):
    bed.join("a", **fields)
    assert bed.noted() == ["a may not join: inconsistent_group_protocol"]
    assert bed.group is None


@pytest.mark.parametrize("fields", [{"protocols": (("sticky", b""),)}, {"protocol_type": "connect"}])
def test_members_must_have_something_in_common(bed, fields):
    bed.join("a")
    bed.join("b", **fields)
    assert bed.noted() == ["b may not join: inconsistent_group_protocol"]
    assert len(bed.group.members) == 1


def test_the_vote_on_the_strategy(bed):
    """Candidates are what all support; each votes for its first; the most votes win."""
    for name, names in [("a", "x b r"), ("b", "r b"), ("c", "b r y"), ("d", "b r")]:
        bed.join(name, protocols=tuple((each, f"{name} {each}".encode()) for each in names.split()))
    bed.advance(2 * DELAY_MS)
    a = bed.clients["a"]
    assert a.answers[-1].protocol_name == "b"
    assert [metadata for _, _, metadata in a.answers[-1].members] == [b"a b", b"b b", b"c b", b"d b"]


def test_of_equals_the_one_that_was_voted_for_first_wins(bed):
    bed.join("a", protocols=(("r", b""), ("b", b"")))
    bed.join("b", protocols=(("b", b""), ("r", b"")))
    bed.advance(2 * DELAY_MS)
    assert bed.group.protocol_name == "r"


def test_a_group_that_is_full_takes_nobody_else():
    bed = GroupBed(group_max_size=2)
    bed.join("a", "b", "c")
    assert bed.noted() == ["c may not join: group_max_size_reached"]
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    bed.clients["c"].joins()
    assert bed.noted() == ["c may not join: group_max_size_reached"]
    bed.clients["a"].leaves()
    bed.clients["c"].joins()
    bed.clients["b"].joins()
    assert bed.noted() == ["a left", "b joined 2 leading b c", "c joined 2"]


def test_in_a_rebalance_places_go_to_who_comes_first():
    bed = GroupBed(group_max_size=2)
    a, b = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    a.joins()  # the leader wants a rebalance
    c = bed.join("c")
    b.joins()
    assert bed.noted() == ["a joined 2 leading a c", "c joined 2", "b may not join: group_max_size_reached"]
    assert c.is_in


def test_who_does_not_join_again_in_time_is_out(bed):
    a, b = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    a.joins()
    for _ in range(REBALANCE_MS // 5_000):
        assert b.heartbeat() is ErrorCode.rebalance_in_progress
        assert bed.noted() == []
        bed.advance(5_000)
    assert bed.noted() == ["a joined 2 leading a"]
    assert b.heartbeat() is ErrorCode.unknown_member_id


def test_the_slowest_member_decides_how_long_a_rebalance_waits(bed):
    a = bed.join("a", rebalance_timeout_ms=1_000, session_timeout_ms=1_800_000)
    b = bed.join("b", rebalance_timeout_ms=100_000, session_timeout_ms=1_800_000)
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    a.joins()
    bed.noted()
    bed.advance(99_999)
    assert bed.noted() == []
    bed.advance(1)
    assert bed.noted() == ["a joined 2 leading a"]
    assert b.heartbeat() is ErrorCode.unknown_member_id


def test_a_leader_that_does_not_come_back_is_replaced(bed):
    a, b, c = bed.join("a", "b", "c")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    a.leaves()
    c.joins()
    b.joins()
    assert bed.noted() == ["a left", "b joined 2 leading b c", "c joined 2"]


def test_a_follower_that_joins_for_no_reason_is_told_the_generation_again(bed):
    _, b = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    b.joins()
    assert bed.noted() == ["b joined 1"]
    assert bed.state is State.STABLE


def test_a_leader_that_joins_wants_a_rebalance(bed):
    a, b = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    a.joins()
    assert bed.state is State.PREPARING
    assert b.heartbeat() is ErrorCode.rebalance_in_progress
    b.joins()
    assert bed.noted() == ["a joined 2 leading a b", "b joined 2"]


def test_a_follower_with_another_subscription_begins_a_rebalance(bed):
    a, b = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    b.joins(protocols=(("range", b"other topics"),))
    assert bed.state is State.PREPARING
    a.joins()
    assert bed.noted() == ["a joined 2 leading a b", "b joined 2"]
    assert a.answers[-1].members[1][2] == b"other topics"


def test_a_join_that_is_repeated_before_all_have_synced_gets_the_same_answer(bed):
    a, b = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.noted()
    a.joins()
    b.joins()
    assert bed.noted() == ["a joined 1 leading a b", "b joined 1"]
    assert bed.state is State.COMPLETING


def test_another_subscription_before_all_have_synced_begins_the_next_rebalance(bed):
    a, b, c = bed.join("a", "b", "c")
    bed.advance(2 * DELAY_MS)
    bed.noted()
    c.syncs()
    b.joins(protocols=(("range", b"other topics"),))
    assert bed.noted() == ["c sync failed: rebalance_in_progress"]
    a.joins()
    c.joins()
    assert bed.noted() == ["a joined 2 leading a b c", "b joined 2", "c joined 2"]


def test_a_join_that_is_repeated_while_it_waits_answers_the_first_one_too(bed):
    a, _ = bed.join("a", "b")
    bed.advance(2 * DELAY_MS)
    bed.all_sync()
    bed.noted()
    a.joins()
    a.joins()
    assert bed.noted() == ["a join failed: rebalance_in_progress"]
    assert a.heartbeat() is ErrorCode.rebalance_in_progress


def test_a_new_member_that_waits_too_long_for_its_first_answer_is_given_up(bed):
    """It cannot be heard of meanwhile: its client may have gone, and come back as another."""
    bed.join("a", rebalance_timeout_ms=1_000_000)
    bed.settles()
    bed.join("b", rebalance_timeout_ms=1_000_000)
    bed.noted()
    for _ in range(60):
        bed.clients["a"].heartbeat()
        bed.advance(5_000)
    assert bed.noted() == ["b join failed: unknown_member_id"]
    assert bed.clients["a"].commit() is NONE


def test_generations_only_grow(bed):
    a = bed.join("a")
    bed.settles()
    a.leaves()
    assert (bed.state, bed.group.generation_id) == (State.EMPTY, 2)
    a.member_id = ""
    a.joins()
    bed.advance(DELAY_MS)
    assert a.generation_id == 3
