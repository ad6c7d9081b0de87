"""The assignors of the coordinator: balanced, within the subscriptions, and (uniform) sticky."""

from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.groups.consumer.assignment import pairs
from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform, configured_assignors

A, B, C = (UUID(int=number) for number in (1, 2, 3))
TOPICS = (A, B, C)


def sizes(plan):
    return {member_id: sum(map(len, has.values())) for member_id, has in plan.items()}


def given_out(plan):
    return [pair for has in plan.values() for pair in pairs(has)]


def moved(before, after):
    """Counts the partitions whose reader changed, among the partitions with a reader."""
    readers = {pair: member_id for member_id, has in before.items() for pair in pairs(has)}
    return sum(readers.get(pair, member_id) != member_id for member_id, has in after.items() for pair in pairs(has))


def following(plan, members):
    return {member_id: Subscriber(topics, plan.get(member_id, {})) for member_id, topics in members.items()}


counts = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 7)))
subscriptions = st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from(TOPICS)), min_size=1)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=subscriptions, partition_counts=counts)
def test_everything_is_read_once_by_a_subscriber(name, members, partition_counts):
    plan = ASSIGNORS[name](following({}, members), partition_counts)
    assert plan.keys() == members.keys()
    read = frozenset().union(*members.values())
    assert sorted(given_out(plan)) == sorted((t, p) for t in read for p in range(partition_counts[t]))
    for member_id, has in plan.items():
        assert has.keys() <= members[member_id]
        assert all(has.values())


@given(names=st.sets(st.sampled_from("abcdef"), min_size=1), later=st.sets(st.sampled_from("abcdefgh"), min_size=1),
       first=counts, second=counts)  # fmt: skip
def test_the_same_topics_for_all_are_shared_within_one_and_stay(names, later, first, second):
    everything = frozenset(TOPICS)
    before = assign_uniform(following({}, dict.fromkeys(names, everything)), first)
    assert max(sizes(before).values()) - min(sizes(before).values()) <= 1
    after = assign_uniform(following(before, dict.fromkeys(later, everything)), second)
    assert max(sizes(after).values()) - min(sizes(after).values()) <= 1
    # Who stays loses nothing but what is above its share.
    share = -(-sum(second.values()) // len(later))
    for member_id in names & later:
        kept = {topic: mine & set(range(second[topic])) for topic, mine in before[member_id].items()}
        lost = sum(map(len, kept.values())) - sum(
            len(mine & after[member_id].get(t, set())) for t, mine in kept.items()
        )
        assert lost <= max(0, sum(map(len, kept.values())) - (share - (sum(second.values()) % len(later) != 0)))


@settings(max_examples=60)
@given(members=subscriptions, later=subscriptions, first=counts, second=counts)
def test_different_subscriptions_are_as_even_as_can_be(members, later, first, second):
    before = assign_uniform(following({}, members), first)
    after = assign_uniform(following(before, later), second)
    load = sizes(after)
    for giver, taker in combinations(load, 2):
        for high, low in ((giver, taker), (taker, giver)):
            if load[high] > load[low] + 1:
                assert not after[high].keys() & later[low], "a partition could go from the one to the other"


@given(members=subscriptions, partition_counts=counts)
def test_uniform_changes_nothing_when_nothing_has_changed(members, partition_counts):
    plan = assign_uniform(following({}, members), partition_counts)
    assert assign_uniform(following(plan, members), partition_counts) == plan


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=subscriptions, partition_counts=counts, order=st.randoms())
def test_the_order_of_the_input_does_not_matter(name, members, partition_counts, order):
    shuffled = list(members.items())
    order.shuffle(shuffled)
    first, second = (ASSIGNORS[name](following({}, dict(m)), partition_counts) for m in (members, shuffled))
    assert first == second


def test_one_who_comes_takes_only_its_share():
    before = assign_uniform(following({}, {"a": frozenset({A}), "b": frozenset({A})}), {A: 6})
    after = assign_uniform(following(before, {name: frozenset({A}) for name in "abc"}), {A: 6})
    assert sizes(after) == {"a": 2, "b": 2, "c": 2}
    assert moved(before, after) == 2


def test_a_chain_of_members_passes_partitions_on():
    """c is full, and only b can take from it; only a can take from b."""
    members = {"a": frozenset({A}), "b": frozenset({A, B}), "c": frozenset({B})}
    previous = {"b": {A: frozenset({0, 1})}, "c": {B: frozenset({0, 1, 2, 3})}}
    plan = assign_uniform(following(previous, members), {A: 2, B: 4})
    assert sizes(plan) == {"a": 2, "b": 2, "c": 2}


def test_ranges_go_to_members_in_order_with_static_ones_first():
    members = {
        "a": Subscriber(frozenset({A, B})),
        "z": Subscriber(frozenset({A, B}), instance_id="i1"),
        "b": Subscriber(frozenset({A})),
    }
    plan = assign_range(members, {A: 7, B: 2})
    assert plan == {
        "z": {A: frozenset({0, 1, 2}), B: frozenset({0})},
        "a": {A: frozenset({3, 4}), B: frozenset({1})},
        "b": {A: frozenset({5, 6})},
    }


def test_nobody_and_nothing():
    assert assign_uniform({}, {}) == {}
    assert assign_range({}, {}) == {}
    assert assign_uniform({"a": Subscriber(frozenset())}, {}) == {"a": {}}


def test_java_classes_among_the_assignors_mean_nothing():
    class Settings:
        def list(self, _):
            return ("org.example.Mine", "range")

    assert configured_assignors(Settings()) == ("range",)
