"""The choice of the brokers that hold each partition."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.placement import PlacementOptions, check_assignment, place_replicas
from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def test_one_broker_holds_everything():
    assert place_replicas(3, 1, PlacementOptions([7])) == ((7,), (7,), (7,))


def test_leaders_go_round_and_followers_shift():
    assert place_replicas(6, 2, PlacementOptions([0, 1, 2])) == ((0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1))


def test_added_partitions_go_on_where_the_others_ended():
    options = PlacementOptions([0, 1, 2])
    together = place_replicas(6, 2, options)
    assert place_replicas(2, 2, options) + place_replicas(4, 2, options, first_partition=2) == together


@pytest.mark.parametrize(("factor", "brokers"), [(0, [0]), (-1, [0]), (2, [0]), (1, [])])
def test_bad_factors(factor, brokers):
    with pytest.raises(InvalidReplicationFactor):
        place_replicas(1, factor, PlacementOptions(brokers))


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 6))
def test_replicas_are_distinct_and_even(count, factor, broker_count):
    if factor > broker_count:
        return
    brokers = list(range(10, 10 + broker_count))
    placed = place_replicas(count, factor, PlacementOptions(brokers))
    assert len(placed) == count
    assert all(len(set(replicas)) == factor and set(replicas) <= set(brokers) for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1
    assert check_assignment(dict(enumerate(placed)), brokers) == placed


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ({1: (0,)}, "without gaps"),
        ({0: (0,), 2: (0,)}, "without gaps"),
        ({0: ()}, "no broker"),
        ({0: (0, 0)}, "twice"),
        ({0: (0, 1), 1: (0,)}, "replicas"),
        ({0: (9,)}, "unknown"),
    ],
)
def test_bad_assignments(assignment, reason):
    with pytest.raises(InvalidReplicaAssignment, match=reason):
        check_assignment(assignment, [0, 1])


def test_an_assignment_must_fit_the_topics_factor():
    with pytest.raises(InvalidReplicaAssignment):
        check_assignment({0: (0,)}, [0, 1], replication_factor=2)
