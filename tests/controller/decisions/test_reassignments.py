"""Assignments during a reassignment: replicas, adding and removing (KIP-455)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.reassignments import Assignment, Phase, check_move, dropped, phase
from headrace.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress

LIVE = range(1, 10)


def test_the_table_of_a_move():
    at_rest = Assignment((1, 2, 3))
    moving = at_rest.moving_to((4, 5, 6))
    assert moving == Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert phase(moving, (1, 2, 3)) is Phase.COPYING
    assert phase(moving, (1, 2, 3, 4, 5)) is Phase.COPYING
    assert phase(moving, (1, 2, 3, 4, 5, 6)) is Phase.COMPLETE
    assert moving.completed() == Assignment((4, 5, 6))


# replicas before, target, -> replicas, adding, removing
MOVES = [
    ((1, 2, 3), (3, 2, 4), ((3, 2, 4, 1), (4,), (1,))),
    ((1, 2, 3), (3, 2, 1), ((3, 2, 1), (), ())),
    ((1, 2, 3), (1,), ((1, 2, 3), (), (2, 3))),
    ((1,), (2, 1, 3), ((2, 1, 3), (2, 3), ())),
    ((1, 2, 3), (1, 2, 3), ((1, 2, 3), (), ())),
]


@pytest.mark.parametrize(("before", "target", "expected"), MOVES)
def test_moves_and_changes_of_the_count(before, target, expected):
    assert Assignment(before).moving_to(target) == Assignment(*expected)


def test_a_change_of_order_alone_is_complete_at_once():
    assert phase(Assignment((1, 2)).moving_to((2, 1)), (1,)) is Phase.COMPLETE


def test_fewer_replicas_wait_for_those_that_stay():
    assert phase(Assignment((1, 2, 3)).moving_to((3,)), (1, 2)) is Phase.COPYING


def test_a_new_target_drops_what_nobody_wants_any_more():
    moving = Assignment((1, 2)).moving_to((3, 4))
    again = moving.moving_to((4, 5))
    assert again == Assignment((4, 5, 1, 2), (4, 5), (1, 2))
    assert dropped(moving, again) == (3,)


def test_a_cancel_goes_back():
    moving = Assignment((1, 2, 3)).moving_to((3, 4))
    back = moving.cancelled()
    # As in Kafka: the shared replica stays first.
    assert back == Assignment((3, 1, 2))
    assert dropped(moving, back) == (4,)
    with pytest.raises(NoReassignmentInProgress):
        back.cancelled()


@pytest.mark.parametrize(
    ("target", "reason"),
    [((), "target is empty"), ((1, 1), "twice"), ((-1,), "negative"), ((1, 12), "not alive.*12")],
)
def test_bad_targets(target, reason):
    with pytest.raises(InvalidReplicaAssignment, match=reason):
        check_move(Assignment((1, 2)), target, LIVE, (1, 2))


def test_brokers_that_stay_need_not_live():
    assert check_move(Assignment((1, 22)), (22, 3), LIVE, (1,)).target == (22, 3)


def test_the_count_of_replicas_may_be_fixed():
    with pytest.raises(InvalidReplicationFactor):
        check_move(Assignment((1, 2)), (3,), LIVE, (1, 2), may_change_count=False)
    moving = check_move(Assignment((1, 2)), (3, 4), LIVE, (1, 2), may_change_count=False)
    assert check_move(moving, (5, 6), LIVE, (1, 2), may_change_count=False).target == (5, 6)


def test_the_last_in_sync_is_not_dropped():
    moving = Assignment((1, 2)).moving_to((3, 4))
    for target in (None, (5, 6)):
        with pytest.raises(InvalidReplicaAssignment, match="no in-sync replica"):
            check_move(moving, target, LIVE, (3, 4))
        with pytest.raises(InvalidReplicaAssignment, match="no in-sync replica"):
            check_move(moving, target, [3, 4, 5, 6], (1, 3, 4))
        check_move(moving, target, LIVE, (1, 3))


SETS = st.lists(st.integers(1, 7), unique=True, min_size=1, max_size=4)


@given(SETS, st.lists(SETS, max_size=4))
def test_any_number_of_changes_of_mind(first, targets):
    assignment = Assignment(tuple(first))
    for target in targets:
        before = assignment
        assignment = assignment.moving_to(target)
        assert assignment.target == tuple(target)
        assert set(assignment.origin) == set(first)
        assert len(set(assignment.replicas)) == len(assignment.replicas)
        assert set(assignment.replicas) == set(target) | set(first)
        assert set(assignment.adding) == set(target) - set(first)
        assert set(assignment.removing) == set(first) - set(target)
        assert not set(dropped(before, assignment)) & set(first)
        assert assignment.completed() == Assignment(tuple(target))
    if assignment.is_moving:
        assert set(assignment.cancelled().replicas) == set(first)
        assert not assignment.cancelled().is_moving
