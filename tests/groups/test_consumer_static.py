"""Static members of groups of the consumer protocol: instance ids, absence, replacement, fencing."""

import pytest
from consumerbed import SESSION_MS, ConsumerBed

from headrace.protocol.errors import FencedInstanceId, UnknownMemberId, UnreleasedInstanceId


@pytest.fixture
def bed():
    return ConsumerBed()


def joining(**fields):
    return {"epoch": 0, "rebalance_timeout_ms": 1, "owned": {}, "topic_names": frozenset({"t"}), **fields}


def test_who_comes_back_has_what_it_had_and_nobody_is_troubled(bed):
    a, b = bed.join("a", instance_id="i"), bed.join("b")
    bed.settles().noted()
    epochs, had = bed.epochs, a.shown
    assert a.beat(epoch=-2).epoch == -2
    b.beats()
    assert (bed.noted(), bed.epochs) == ([], epochs)
    again = bed.join("a2", instance_id="i")
    assert again.shown == had
    assert (bed.epochs, bed.state) == (epochs, "Stable")
    assert bed.group.state.members.keys() == {"a2", "b"}
    with pytest.raises(FencedInstanceId):
        a.beat()


def test_a_join_whose_answer_was_lost_may_be_repeated(bed):
    """Apache Kafka refuses the second one with UNRELEASED_INSTANCE_ID."""
    a = bed.join("a", instance_id="i")
    had, epochs = a.shown, bed.epochs
    a.joins()
    assert (a.shown, bed.epochs) == (had, epochs)


def test_the_same_id_may_come_back(bed):
    a = bed.join("a", instance_id="i")
    a.beat(epoch=-2)
    a.joins()
    assert a.shown == ["t0", "t1", "t2", "t3"]
    assert bed.epochs == (1, 1)


def test_who_comes_back_with_another_subscription_makes_a_new_epoch(bed):
    bed.topics.put("u", 1)
    bed.join("a", instance_id="i").leaves(epoch=-2)
    again = bed.join("a2", instance_id="i", topics=("t", "u"))
    assert (bed.epochs, len(again.shown)) == ((2, 2), 5)


def test_its_partitions_are_kept_for_its_session(bed):
    a, b = bed.join("a", instance_id="i"), bed.join("b")
    bed.settles()
    bed.advance(SESSION_MS // 2)
    a.beats()
    a.leaves(epoch=-2)
    b.beats()
    bed.advance(SESSION_MS - 1)
    b.beats()
    assert len(b.shown) == 2
    bed.advance(1)
    b.beats()
    assert len(b.shown) == 4
    with pytest.raises(UnknownMemberId):
        a.beat()


def test_partitions_on_their_way_out_are_free_when_it_goes(bed):
    a, b = bed.join("a", instance_id="i"), bed.join("b")
    a.beat()  # is told to let go of two
    a.leaves(epoch=-2)
    b.beats()
    assert b.shown == ["t2", "t3"]


def test_an_instance_that_has_not_left_is_not_given_away(bed):
    a = bed.join("a", instance_id="i")
    with pytest.raises(UnreleasedInstanceId):
        bed.client("a2", instance_id="i").beat(**joining())
    a.beats()
    assert a.is_in


def test_leaving_for_good(bed):
    a, b = bed.join("a", instance_id="i"), bed.join("b")
    a.leaves()
    b.beats()
    assert len(b.shown) == 4


def test_instances_that_are_not_there(bed):
    bed.join("a")
    with pytest.raises(UnknownMemberId):
        bed.client("x", instance_id="j").beat(epoch=1)
    with pytest.raises(UnknownMemberId):
        bed.client("x", instance_id="j").beat(epoch=-2)


def test_it_is_away_after_a_reload_too(bed):
    bed.join("a", instance_id="i").leaves(epoch=-2)
    other = bed.reloaded()
    assert other.join("a2", instance_id="i").shown == ["t0", "t1", "t2", "t3"]
    assert other.epochs == (1, 1)
