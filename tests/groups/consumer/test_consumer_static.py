"""Static members of groups of the consumer protocol: instance ids, absence, replacement, fencing."""

import pytest
from consumer_group_harness import SESSION_MS, ConsumerGroupHarness

from headrace.protocol.errors import FencedInstanceId, UnknownMemberId, UnreleasedInstanceId


@pytest.fixture
def harness():
    return ConsumerGroupHarness()


def joining(**fields):
    return {"epoch": 0, "rebalance_timeout_ms": 1, "owned": {}, "topic_names": frozenset({"t"}), **fields}


def test_who_comes_back_has_what_it_had_and_nobody_is_troubled(harness):
    a, b = harness.join("a", instance_id="i"), harness.join("b")
    harness.settles().noted()
    epochs, had = harness.epochs, a.shown
    assert a.beat(epoch=-2).epoch == -2
    b.beats()
    assert (harness.noted(), harness.epochs) == ([], epochs)
    again = harness.join("a2", instance_id="i")
    assert again.shown == had
    assert (harness.epochs, harness.state) == (epochs, "Stable")
    assert harness.group.metadata.members.keys() == {"a2", "b"}
    with pytest.raises(FencedInstanceId):
        a.beat()


def test_a_join_whose_answer_was_lost_may_be_repeated(harness):
    """Apache Kafka refuses the second one with UNRELEASED_INSTANCE_ID."""
    a = harness.join("a", instance_id="i")
    had, epochs = a.shown, harness.epochs
    a.joins()
    assert (a.shown, harness.epochs) == (had, epochs)


def test_the_same_id_may_come_back(harness):
    a = harness.join("a", instance_id="i")
    a.beat(epoch=-2)
    a.joins()
    assert a.shown == ["t0", "t1", "t2", "t3"]
    assert harness.epochs == (1, 1)


def test_who_comes_back_with_another_subscription_makes_a_new_epoch(harness):
    harness.topics.put("u", 1)
    harness.join("a", instance_id="i").leaves(epoch=-2)
    again = harness.join("a2", instance_id="i", topics=("t", "u"))
    assert (harness.epochs, len(again.shown)) == ((2, 2), 5)


def test_its_partitions_are_kept_for_its_session(harness):
    a, b = harness.join("a", instance_id="i"), harness.join("b")
    harness.settles()
    harness.advance(SESSION_MS // 2)
    a.beats()
    a.leaves(epoch=-2)
    b.beats()
    harness.advance(SESSION_MS - 1)
    b.beats()
    assert len(b.shown) == 2
    harness.advance(1)
    b.beats()
    assert len(b.shown) == 4
    with pytest.raises(UnknownMemberId):
        a.beat()


def test_partitions_on_their_way_out_are_free_when_it_goes(harness):
    a, b = harness.join("a", instance_id="i"), harness.join("b")
    a.beat()  # is told to let go of two
    a.leaves(epoch=-2)
    b.beats()
    assert b.shown == ["t2", "t3"]


def test_an_instance_that_has_not_left_is_not_given_away(harness):
    a = harness.join("a", instance_id="i")
    with pytest.raises(UnreleasedInstanceId):
        harness.client("a2", instance_id="i").beat(**joining())
    a.beats()
    assert a.is_in


def test_leaving_for_good(harness):
    a, b = harness.join("a", instance_id="i"), harness.join("b")
    a.leaves()
    b.beats()
    assert len(b.shown) == 4


def test_instances_that_are_not_there(harness):
    harness.join("a")
    with pytest.raises(UnknownMemberId):
        harness.client("x", instance_id="j").beat(epoch=1)
    with pytest.raises(UnknownMemberId):
        harness.client("x", instance_id="j").beat(epoch=-2)


def test_it_is_away_after_a_reload_too(harness):
    harness.join("a", instance_id="i").leaves(epoch=-2)
    other = harness.reloaded()
    assert other.join("a2", instance_id="i").shown == ["t0", "t1", "t2", "t3"]
    assert other.epochs == (1, 1)
