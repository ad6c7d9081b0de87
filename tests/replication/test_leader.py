"""The leader's rules for the ISR and the high watermark, one per test (``test_replication_machine.py``: all)."""

import pytest

from headrace.coordination.znodes import PartitionState
from headrace.protocol.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from headrace.replication.epoch_ends import NO_EPOCH_END, EpochEnd
from headrace.replication.leader import FetchOutcome, FollowerFetch, IsrChange, LeaderSettings, PartitionLeader

LAG_MS = 100


def leader(isr=(1, 2, 3), replicas=(1, 2, 3), min_isr=1, next_offset=10, high_watermark=10, **values):
    state = PartitionState(1, 5, isr, 1)
    settings = LeaderSettings(min_isr, LAG_MS)
    return PartitionLeader(
        1,
        state,
        7,
        replicas,
        next_offset=next_offset,
        high_watermark=high_watermark,
        now_ms=0,
        settings=settings,
        **values,
    )


def fetch(one, replica_id, offset, now_ms=0, *, leader_epoch=5, last_epoch=-1, end=NO_EPOCH_END, log_start_offset=0):
    asked = FollowerFetch(leader_epoch, offset, last_epoch, log_start_offset)
    return one.fetched(replica_id, asked, end, now_ms)


# The high watermark


def test_alone_everything_is_committed_at_once():
    one = leader(isr=(1,), replicas=(1,))
    assert one.appended(12, 0)
    assert one.high_watermark == 12
    assert one.is_acknowledged(12)


def test_committed_is_what_all_in_sync_have():
    one = leader()
    assert not one.appended(15, 0)
    assert fetch(one, 2, 15) == FetchOutcome()
    assert fetch(one, 3, 12) == FetchOutcome(has_high_watermark_moved=True)
    assert one.high_watermark == 12
    assert one.is_acknowledged(12)
    assert not one.is_acknowledged(13)
    assert fetch(one, 3, 15).has_high_watermark_moved
    assert one.high_watermark == 15


def test_until_all_have_been_heard_of_nothing_is_committed():
    one = leader(next_offset=10, high_watermark=4)
    assert not one.knows_high_watermark
    assert not fetch(one, 2, 10).has_high_watermark_moved
    assert fetch(one, 3, 10).has_high_watermark_moved
    assert one.knows_high_watermark


def test_it_does_not_go_back_when_a_follower_does():
    one = leader()
    fetch(one, 2, 10)
    assert not fetch(one, 3, 5).has_high_watermark_moved
    assert one.high_watermark == 10


def test_who_is_not_in_sync_does_not_count_unless_it_has_caught_up():
    one = leader(isr=(1, 2))
    fetch(one, 2, 10)
    assert fetch(one, 3, 4).isr_change is None
    one.appended(20, 0)
    assert fetch(one, 2, 20).has_high_watermark_moved
    assert one.high_watermark == 20
    one.ineligible = {3}  # or it would be let in now
    fetch(one, 3, 20, 1)
    one.ineligible = frozenset()
    one.appended(30, 2)
    assert not fetch(one, 2, 30, 3).has_high_watermark_moved  # 3 waits to be let in
    assert one.appended(30, 2 + LAG_MS)  # and has not come


def test_what_was_known_is_no_more_than_there_is():
    assert leader(next_offset=5, high_watermark=9).high_watermark == 5
    assert leader(next_offset=9, high_watermark=2, log_start_offset=4).high_watermark == 4


# The ISR


def test_who_was_behind_for_too_long_goes():
    one = leader()
    one.appended(20, 0)
    fetch(one, 2, 20, 50)
    assert one.shrink_isr(LAG_MS) is None
    change = one.shrink_isr(LAG_MS + 1)
    assert change == IsrChange(PartitionState(1, 5, (1, 2), 1), 7)
    assert one.pending == change
    assert one.maximal_isr == {1, 2, 3}
    assert one.high_watermark == 10  # a next leader might still be 3
    assert one.shrink_isr(10 * LAG_MS) is None  # one at a time
    assert one.isr_written(change, 8, LAG_MS + 2)
    assert (one.isr, one.version, one.high_watermark) == ((1, 2), 8, 20)


def test_who_has_lost_what_is_committed_goes_at_once():
    """The follower had the records when it joined the ISR, so its host has lost them."""
    one = leader()
    fetch(one, 2, 10)
    change = fetch(one, 3, 9).isr_change
    assert change is not None
    assert change.state.isr == (1, 2)
    assert fetch(one, 3, 9).isr_change is None, "one change at a time"
    one.isr_written(change, 8, 0)
    again = fetch(one, 3, 10).isr_change
    assert again is not None
    assert again.state.isr == (1, 2, 3)


def test_always_a_little_behind_is_caught_up():
    one = leader(isr=(1, 2), replicas=(1, 2))
    for step in range(20):
        one.appended(11 + step, 30 * step)
        fetch(one, 2, 10 + step, 30 * step)
        assert one.shrink_isr(30 * step) is None


def test_who_takes_nothing_goes_however_often_it_asks():
    one = leader(isr=(1, 2), replicas=(1, 2))
    one.appended(20, 0)
    for now_ms in range(0, LAG_MS + 1, 10):
        fetch(one, 2, 10, now_ms)
        assert one.shrink_isr(now_ms) is None
    assert one.shrink_isr(LAG_MS + 1).state.isr == (1,)


def test_who_has_all_that_is_committed_comes_back():
    one = leader(isr=(1, 2), next_offset=10, high_watermark=10)
    fetch(one, 2, 10)
    one.appended(20, 0)
    fetch(one, 2, 15)
    assert one.high_watermark == 15
    assert fetch(one, 3, 14).isr_change is None
    change = fetch(one, 3, 15).isr_change
    assert change == IsrChange(PartitionState(1, 5, (1, 2, 3), 1), 7)
    assert one.maximal_isr == {1, 2, 3}
    assert one.isr == (1, 2)
    fetch(one, 2, 20)
    assert one.high_watermark == 15  # 3 may be in the ISR already
    assert not one.isr_written(change, 8, 0)
    assert one.isr == (1, 2, 3)


def test_nobody_comes_in_below_where_this_epoch_began():
    one = leader(isr=(1, 2), next_offset=10, high_watermark=4)
    assert fetch(one, 3, 6).isr_change is None
    assert fetch(one, 3, 10).isr_change is not None


def test_the_dead_and_the_dying_do_not_come_in():
    one = leader(isr=(1, 2))
    one.ineligible = {3}
    assert fetch(one, 3, 10).isr_change is None


def test_a_refused_change_is_not_asked_for_again_until_the_controller_has_spoken():
    one = leader(isr=(1, 2))
    change = fetch(one, 3, 10).isr_change
    one.isr_rejected(change)
    assert set(one.maximal_isr) == {1, 2}
    assert fetch(one, 3, 10).isr_change is None
    assert one.shrink_isr(1_000) is None
    one.begin_next_epoch(PartitionState(1, 6, (1, 2), 1), 9, (1, 2, 3), 0)
    assert not one.isr_written(change, 8, 0)  # of before
    assert fetch(one, 3, 10, leader_epoch=6).isr_change == IsrChange(PartitionState(1, 6, (1, 2, 3), 1), 9)


def test_leading_on_in_the_next_epoch():
    one = leader()
    fetch(one, 2, 10)
    fetch(one, 3, 8)
    one.appended(12, 0)
    assert not one.begin_next_epoch(PartitionState(1, 6, (1, 2), 1), 9, (1, 2, 4), 50)
    assert (one.leader_epoch, one.epoch_start_offset, one.version) == (6, 12, 9)
    assert one.remote(2).next_offset == 10
    assert one.remote(3) is None
    assert one.remote(4).next_offset == -1


def test_after_an_epoch_of_which_we_know_nothing_followers_are_asked_anew():
    one = leader()
    fetch(one, 2, 10)
    one.begin_next_epoch(PartitionState(1, 7, (1, 2), 1), 9, (1, 2, 3), 50)
    assert one.remote(2).next_offset == -1


# min.insync.replicas


def test_too_few_in_sync():
    one = leader(isr=(1, 2), min_isr=2)
    one.check_enough_replicas()
    one.appended(11, 0)
    fetch(one, 2, 11)
    one.appended(12, 0)
    change = one.shrink_isr(LAG_MS + 1)
    assert not one.is_acknowledged(12)  # it is not certain yet
    assert not one.isr_written(change, 8, 0)
    with pytest.raises(NotEnoughReplicas):
        one.check_enough_replicas()
    with pytest.raises(NotEnoughReplicasAfterAppend):
        one.is_acknowledged(12)
    assert one.is_acknowledged(11)
    assert not one.appended(13, 0)
    assert one.high_watermark == 11  # it stands still (KIP-966)


def test_not_more_than_there_are_replicas_must_be_in_sync():
    one = leader(isr=(1,), replicas=(1,), min_isr=2)
    one.check_enough_replicas()
    assert one.appended(11, 0)
    assert one.is_acknowledged(11)


# Fetches that are refused


@pytest.mark.parametrize(
    ("error", "replica_id", "offset", "values"),
    [
        (FencedLeaderEpoch, 2, 10, {"leader_epoch": 4}),
        (UnknownLeaderEpoch, 2, 10, {"leader_epoch": 6}),
        (NotLeaderOrFollower, 9, 10, {}),
        (OffsetOutOfRange, 2, 21, {}),
        (OffsetOutOfRange, 2, 1, {}),
        (OffsetOutOfRange, 2, 1, {"last_epoch": 3, "end": EpochEnd(2, 1)}),
        (OffsetOutOfRange, 2, 10, {"last_epoch": 9}),
    ],
)
def test_refused_and_nothing_has_changed(error, replica_id, offset, values):
    one = leader(log_start_offset=2)
    one.appended(20, 0)
    with pytest.raises(error):
        fetch(one, replica_id, offset, **values)
    assert one.remote(2).next_offset == -1
    assert one.high_watermark == 10


@pytest.mark.parametrize(
    ("offset", "last_epoch", "end", "is_diverging"),
    [
        (10, 4, EpochEnd(4, 10), False),
        (9, 4, EpochEnd(4, 10), False),
        (11, 4, EpochEnd(4, 10), True),  # we have less of that epoch
        (25, 5, EpochEnd(5, 20), True),  # even beyond our end
        (8, 4, EpochEnd(3, 9), True),  # we do not have that epoch at all
    ],
)
def test_who_has_other_records_is_told_and_does_not_count(offset, last_epoch, end, is_diverging):
    one = leader()
    one.appended(20, 0)
    answer = fetch(one, 2, offset, last_epoch=last_epoch, end=end)
    assert answer.diverging == (end if is_diverging else None)
    assert one.remote(2).next_offset == (-1 if is_diverging else offset)


def test_where_all_logs_begin():
    one = leader(log_start_offset=6)
    assert one.low_watermark == -1
    fetch(one, 2, 10, log_start_offset=4)
    fetch(one, 3, 10, log_start_offset=2)
    assert one.low_watermark == 2
    one.ineligible = {3}
    assert one.low_watermark == 4
