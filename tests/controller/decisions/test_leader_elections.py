"""The choice of the next leader."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.controller.decisions.leader_elections import (
    NO_LEADER,
    Elected,
    Leadership,
    Refusal,
    elect_first_leader,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    imbalanced_partitions,
)
from headrace.protocol.errors import ElectionNotNeeded, EligibleLeadersNotAvailable, PreferredLeaderNotAvailable

EPOCH = 7


def led(leader, isr, epoch=4, **others):
    return Leadership(leader, epoch, tuple(isr), 5, version=9, **others)


# Kafka 3.x answers to the same questions: replicas, ISR, online, unclean -> leader and ISR.
OFFLINE = [
    ([1, 2, 3], [1, 2, 3], [2, 3], False, (2, (2, 3))),
    ([3, 2, 1], [1, 2, 3], [1, 2], False, (2, (1, 2))),
    ([1, 2, 3], [1, 3], [2, 3], False, (3, (3,))),
    ([1, 2, 3], [1], [2, 3], False, Refusal.NO_REPLICA_IN_SYNC),
    ([1, 2, 3], [1], [2, 3], True, (2, (2,))),
    ([1, 2, 3], [1, 3], [2, 3], True, (3, (3,))),
    ([1, 2, 3], [1], [], True, Refusal.NO_REPLICA_ONLINE),
    ([1, 2, 3], [1], [1, 2, 3], True, (1, (1,))),
]


@pytest.mark.parametrize(("replicas", "isr", "online", "unclean", "expected"), OFFLINE)
def test_offline(replicas, isr, online, unclean, expected):
    outcome = elect_offline(led(NO_LEADER, isr), replicas, online, EPOCH, unclean=unclean)
    if isinstance(expected, Refusal):
        assert outcome is expected
        return
    leader, new_isr = expected
    is_unclean = leader not in isr
    assert outcome == Elected(
        Leadership(leader, 5, new_isr, EPOCH, version=9, is_recovering=is_unclean),
        tuple(replica for replica in replicas if replica in online),
        is_unclean,
    )


def test_a_partition_that_recovers_goes_on_recovering_under_a_clean_leader():
    outcome = elect_offline(led(1, [1, 2], is_recovering=True), [1, 2], [2], EPOCH, unclean=False)
    assert outcome.leadership.is_recovering


@pytest.mark.parametrize(
    ("online", "expected"),
    [([3, 1, 2], (1, (1, 2, 3))), ([3, 2], (2, (2, 3))), ([], Refusal.NO_REPLICA_ONLINE)],
)
def test_the_first_leader(online, expected):
    outcome = elect_first_leader([1, 2, 3], online, EPOCH)
    if isinstance(expected, Refusal):
        assert outcome is expected
    else:
        assert outcome == Elected(Leadership(expected[0], 0, expected[1], EPOCH), expected[1])


@pytest.mark.parametrize(
    ("leader", "isr", "online", "expected"),
    [
        (2, [1, 2], [1, 2, 3], 1),
        (1, [1, 2], [1, 2, 3], Refusal.NOT_NEEDED),
        (2, [2, 3], [1, 2, 3], Refusal.PREFERRED_NOT_IN_SYNC),
        (2, [1, 2], [2, 3], Refusal.PREFERRED_NOT_IN_SYNC),
    ],
)
def test_preferred(leader, isr, online, expected):
    outcome = elect_preferred(led(leader, isr), [1, 2, 3], online, EPOCH)
    if isinstance(expected, Refusal):
        assert outcome is expected
    else:
        assert outcome == Elected(Leadership(expected, 5, tuple(isr), EPOCH, version=9), (1, 2, 3))


@pytest.mark.parametrize(
    ("isr", "online", "expected"),
    [
        ([1, 4, 5], [1, 4, 5], 4),
        ([1, 4, 5], [1, 5], 5),
        ([1, 2], [1, 4, 5], Refusal.TARGET_NOT_IN_SYNC),
        ([4], [1], Refusal.TARGET_NOT_IN_SYNC),
    ],
)
def test_reassigned(isr, online, expected):
    outcome = elect_reassigned(led(1, isr), [4, 5], online, EPOCH)
    if isinstance(expected, Refusal):
        assert outcome is expected
    else:
        assert outcome == Elected(Leadership(expected, 5, tuple(isr), EPOCH, version=9), (4, 5))


@pytest.mark.parametrize(
    ("isr", "online", "stopping", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], [1], (2, (2, 3))),
        ([1, 2, 3], [1, 2, 3], [1, 2], (3, (3,))),
        ([1, 3], [1, 2, 3], [1], (3, (3,))),
        ([1], [1, 2, 3], [1], Refusal.NO_OTHER_IN_SYNC),
        ([1, 2], [1, 3], [1], Refusal.NO_OTHER_IN_SYNC),
        ([1, 2, 3], [1, 2, 3], [1, 2, 3], Refusal.NO_OTHER_IN_SYNC),
    ],
)
def test_controlled_shutdown(isr, online, stopping, expected):
    outcome = elect_for_shutdown(led(1, isr), [1, 2, 3], online, stopping, EPOCH)
    if isinstance(expected, Refusal):
        assert outcome is expected
    else:
        told = tuple(replica for replica in (1, 2, 3) if replica in online)
        assert outcome == Elected(Leadership(expected[0], 5, expected[1], EPOCH, version=9), told)


@pytest.mark.parametrize(
    ("leader", "isr", "gone", "expected"),
    [
        (1, [1, 2, 3], {3}, (1, (1, 2))),
        (1, [1, 2, 3], {1}, (NO_LEADER, (2, 3))),
        (1, [1, 2], {3}, None),
        (1, [1], {1}, (NO_LEADER, (1,))),
        (1, [1, 2], {1, 2}, (NO_LEADER, (1, 2))),
        (NO_LEADER, [1], {1}, None),
    ],
)
def test_leaving_the_isr(leader, isr, gone, expected):
    after = led(leader, isr).without(gone, EPOCH)
    assert after == (expected and Leadership(expected[0], 5, expected[1], EPOCH, version=9))


def test_refusals_as_clients_see_them():
    for refusal in Refusal:
        assert "t-0" in str(refusal.error("t-0"))
    assert isinstance(Refusal.NOT_NEEDED.error("t-0"), ElectionNotNeeded)
    assert isinstance(Refusal.PREFERRED_NOT_IN_SYNC.error("t-0"), PreferredLeaderNotAvailable)
    assert isinstance(Refusal.NO_REPLICA_IN_SYNC.error("t-0"), EligibleLeadersNotAvailable)


BROKERS = st.integers(1, 5)
SOME = st.lists(BROKERS, unique=True, max_size=5)


@given(st.permutations([1, 2, 3]), SOME, SOME, SOME, st.booleans(), st.integers(0, 9), st.booleans())
def test_whoever_is_elected(replicas, isr, online, stopping, unclean, epoch, has_leader):
    isr = [replica for replica in isr if replica in replicas] or [replicas[0]]
    current = led(isr[0] if has_leader else NO_LEADER, isr, epoch)
    outcomes = {
        "offline": elect_offline(current, replicas, online, EPOCH, unclean=unclean),
        "preferred": elect_preferred(current, replicas, online, EPOCH),
        "reassigned": elect_reassigned(current, replicas, online, EPOCH),
        "shutdown": elect_for_shutdown(current, replicas, online, stopping, EPOCH),
    }
    for how, outcome in outcomes.items():
        if isinstance(outcome, Refusal):
            continue
        new = outcome.leadership
        assert new.leader_epoch == epoch + 1
        assert new.controller_epoch == EPOCH
        assert new.version == current.version
        assert new.leader in new.isr
        assert new.leader in online
        assert set(new.isr) <= set(replicas)
        if how == "offline" and not set(isr) & set(online):
            assert unclean
            assert new.isr == (new.leader,)
            assert new.is_recovering
        else:
            assert new.leader in isr
            assert set(new.isr) <= set(isr)
            assert not new.is_recovering
        if how == "shutdown":
            assert not set(new.isr) & set(stopping)
    if not isinstance(outcomes["offline"], Refusal):
        in_sync = [replica for replica in replicas if replica in isr and replica in online]
        first = in_sync[0] if in_sync else next(replica for replica in replicas if replica in online)
        assert outcomes["offline"].leadership.leader == first


def test_imbalance_is_counted_a_broker():
    leaders = [(("t", index), 1, 1 if index < 8 else 2) for index in range(10)]
    leaders += [(("u", index), 2, 2 if index else 3) for index in range(10)]
    assert imbalanced_partitions(leaders, 10) == [("t", 8), ("t", 9)]
    assert imbalanced_partitions(leaders, 20) == []
    assert imbalanced_partitions(leaders, 0) == [("t", 8), ("t", 9), ("u", 0)]
    for some in permutations(leaders[7:10]):
        assert set(imbalanced_partitions(some, 60)) == {("t", 8), ("t", 9)}
