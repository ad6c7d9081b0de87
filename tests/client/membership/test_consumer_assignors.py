"""The assignors of classic groups: Java's results where they are fixed, balance and stickiness where they are not."""

from collections import Counter
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.membership.assignors import (
    ASSIGNORS,
    Assignments,
    Member,
    Members,
    Rebalance,
    in_order,
    member_from,
    user_data_for,
)
from headrace.client.types import TopicPartition
from headrace.protocol.wire.consumer_protocol import Subscription

TOPICS = ["a", "b", "c", "d"]
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
PARTITIONS = st.builds(TopicPartition, st.sampled_from([*TOPICS, "gone"]), st.integers(0, 8))
MEMBER = st.builds(
    Member,
    st.frozensets(st.sampled_from(TOPICS)),
    st.frozensets(PARTITIONS, max_size=8),
    st.integers(-1, 3),
    st.none(),
)
MEMBERS = st.dictionaries(st.sampled_from([f"m{number}" for number in range(7)]), MEMBER, min_size=1)


def assign(name: str, members: Members, counts: dict[str, int]) -> Assignments:
    return ASSIGNORS[name].assign(members, counts)


def readers(*member_ids: str, topics: str = "ab") -> dict[str, Member]:
    return {member_id: Member(frozenset(topics)) for member_id in member_ids}


def short(assignments: Assignments) -> dict[str, str]:
    return {
        member_id: " ".join(f"{topic}{number}" for topic, number in partitions)
        for member_id, partitions in assignments.items()
    }


def owning(members: Members, assignments: Assignments, generation: int = 1) -> dict[str, Member]:
    return {
        member_id: member._replace(owned=frozenset(assignments.get(member_id, ())), generation=generation)
        for member_id, member in members.items()
    }


def wanted(members: Members, counts: dict[str, int]) -> list[TopicPartition]:
    topics = {topic for member in members.values() for topic in member.topics}
    return sorted(TopicPartition(topic, number) for topic in topics for number in range(counts[topic]))


def test_range_gives_runs_of_each_topic_and_the_first_members_one_more():
    assert short(assign("range", readers("y", "x"), {"a": 3, "b": 3})) == {"x": "a0 a1 b0 b1", "y": "a2 b2"}


def test_round_robin_deals_over_all_topics():
    assert short(assign("roundrobin", readers("y", "x"), {"a": 3, "b": 3})) == {"x": "a0 a2 b1", "y": "a1 b0 b2"}


def test_round_robin_passes_over_who_does_not_read_the_topic():
    members = {"x": Member(frozenset("a")), "y": Member(frozenset("ab")), "z": Member(frozenset("abc"))}
    found = assign("roundrobin", members, {"a": 1, "b": 2, "c": 3})
    assert short(found) == {"x": "a0", "y": "b0", "z": "b1 c0 c1 c2"}


def test_static_members_come_first_by_their_instance_ids():
    members = {"a": Member(frozenset()), "b": Member(frozenset(), group_instance_id="2")}
    members["c"] = Member(frozenset(), group_instance_id="1")
    assert in_order(members) == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("name", "theirs"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)]
)
@given(members=MEMBERS, counts=COUNTS)
def test_range_and_round_robin_are_what_other_clients_compute(name, theirs, members, counts):
    counts = {topic: count for topic, count in counts.items() if count}
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic])) if topic in counts else None)
    sent = {
        member_id: ConsumerProtocolMemberMetadata(0, sorted(member.topics), b"")
        for member_id, member in members.items()
    }
    expected = {
        member_id: sorted((topic, number) for topic, numbers in assignment.assignment for number in numbers)
        for member_id, assignment in theirs.assign(cluster, sent).items()
    }
    found = {member_id: sorted(map(tuple, given)) for member_id, given in assign(name, members, counts).items()}
    assert found == {member_id: expected.get(member_id, []) for member_id in members}


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(members=MEMBERS, counts=COUNTS)
def test_every_partition_goes_to_exactly_one_member_that_reads_its_topic(name, members, counts):
    found = assign(name, members, counts)
    assert found.keys() == members.keys()
    assert sorted(one for given in found.values() for one in given) == wanted(members, counts)
    assert all(one.topic in members[member_id].topics for member_id, given in found.items() for one in given)


@given(members=MEMBERS, counts=COUNTS)
def test_sticky_leaves_nobody_with_two_more_than_one_who_could_take_over(members, counts):
    found = assign("sticky", members, counts)
    for giver, given_ in found.items():
        for taker, member in members.items():
            if any(one.topic in member.topics for one in given_):
                assert len(given_) - len(found[taker]) <= 1, (giver, taker)


def test_sticky_balances_along_a_chain_of_members():
    members = {"x": Member(frozenset("a")), "y": Member(frozenset("ab")), "z": Member(frozenset("b"))}
    owned = {"x": [TopicPartition("a", n) for n in range(3)], "y": [TopicPartition("b", n) for n in range(2)]}
    owned["z"] = [TopicPartition("b", 2)]
    found = assign("sticky", owning(members, owned), {"a": 3, "b": 3})
    assert [len(found[member_id]) for member_id in "xyz"] == [2, 2, 2]


@given(members=MEMBERS, counts=COUNTS)
def test_sticky_changes_nothing_where_nothing_changed(members, counts):
    first = assign("sticky", members, counts)
    assert assign("sticky", owning(members, first), counts) == first


@given(members=MEMBERS, counts=COUNTS, topics=st.frozensets(st.sampled_from(TOPICS), min_size=1))
def test_sticky_moves_no_more_than_balance_asks_where_all_read_the_same(members, counts, topics):
    members = {member_id: Member(topics) for member_id in members}
    before = assign("sticky", members, counts)
    grown = owning(members, before) | {"new": Member(topics)}
    after = assign("sticky", grown, counts)
    moved = sum(len(set(before[member_id]) - set(after[member_id])) for member_id in before)
    assert moved == len(after["new"])
    left = {member_id: member for member_id, member in owning(grown, after, 2).items() if member_id != "new"}
    again = assign("sticky", left, counts)
    assert all(set(after[member_id]) <= set(again[member_id]) for member_id in left)


def test_a_claim_of_a_younger_generation_holds_and_two_equal_ones_cancel_out():
    both = frozenset({TopicPartition("a", 0), TopicPartition("a", 1)})
    old, young = Member(frozenset("a"), both, 4), Member(frozenset("a"), frozenset({TopicPartition("a", 0)}), 5)
    assert short(assign("sticky", {"x": old, "y": young}, {"a": 2})) == {"x": "a1", "y": "a0"}
    twins = {"x": old, "y": old}
    assert short(assign("sticky", twins, {"a": 2})) == {"x": "a0", "y": "a1"}


@given(members=MEMBERS, counts=COUNTS)
def test_cooperative_never_gives_what_only_another_one_still_owns(members, counts):
    found = assign("cooperative-sticky", members, counts)
    given_ = Counter(one for partitions in found.values() for one in partitions)
    assert all(times == 1 for times in given_.values())
    for member_id, partitions in found.items():
        others = {one for other, member in members.items() if other != member_id for one in member.owned}
        assert not (set(partitions) - members[member_id].owned) & others


@given(members=MEMBERS, counts=COUNTS)
def test_cooperative_is_complete_and_balanced_after_the_second_round(members, counts):
    first = assign("cooperative-sticky", members, counts)
    second = assign("cooperative-sticky", owning(members, first), counts)
    assert sorted(one for given in second.values() for one in given) == wanted(members, counts)
    assert second == assign("cooperative-sticky", owning(members, second, 2), counts)


def test_the_second_round_finds_the_balance_without_taking_anything_from_anybody():
    members = {member_id: Member(frozenset("abc")) for member_id in "xw"}
    members |= {"y": Member(frozenset("ac")), "z": Member(frozenset("b"))}
    owned = {"w": [TopicPartition("a", 0), TopicPartition("b", 0)], "z": [TopicPartition("c", 0)]}
    first = assign("cooperative-sticky", owning(members, owned), {"a": 1, "b": 1, "c": 2})
    second = assign("cooperative-sticky", owning(members, first), {"a": 1, "b": 1, "c": 2})
    assert sorted(map(len, second.values())) == [1, 1, 1, 1]


def test_cooperative_withholds_what_must_first_be_given_up():
    members = {"x": Member(frozenset("a"), frozenset(TopicPartition("a", n) for n in range(4)), 1)}
    members["y"] = Member(frozenset("a"))
    first = assign("cooperative-sticky", members, {"a": 4})
    assert short(first) == {"x": "a0 a1", "y": ""}
    assert short(assign("cooperative-sticky", owning(members, first, 2), {"a": 4})) == {"x": "a0 a1", "y": "a2 a3"}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_what_a_member_had_reaches_the_leader(name):
    owned = frozenset({TopicPartition("a", 1), TopicPartition("b", 0)})
    is_eager = ASSIGNORS[name].rebalance is Rebalance.EAGER
    sent = Subscription(("a", "b"), user_data_for(name, owned, 7), () if is_eager else tuple(owned))
    assert member_from(name, sent, "i") == Member(frozenset("ab"), owned, 7, "i")
