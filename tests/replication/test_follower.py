"""The follower's requests, and the actions that follow from the answers. One rule per test."""

import pytest
from memory_log import MemoryLog

from headrace.protocol.errors import FencedLeaderEpoch, NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch
from headrace.replication.epoch_ends import EpochEnd, TruncationPoint, truncation_point
from headrace.replication.follower import (
    AdvanceOffsets,
    EpochEndRequest,
    FetchResult,
    FollowerFetch,
    FollowerState,
    LogRangeRequest,
    PartitionFollower,
    TruncateFully,
    TruncateTo,
    Truncation,
)


def log_of(*epochs, high_watermark=0):
    """A log with a record of each of these epochs."""
    log = MemoryLog()
    log.append([(epoch, str(offset)) for offset, epoch in enumerate(epochs)])
    log.high_watermark = high_watermark
    return log


def fetching(log, epoch=9):
    """A follower whose log agrees with the leader's, so that it fetches."""
    follower = PartitionFollower(1, epoch, log)
    follower.first_action()
    if follower.state is FollowerState.TRUNCATING:
        follower.on_epoch_end(follower.next_request(), EpochEnd(log.latest_epoch, log.next_offset))
    assert follower.state is FollowerState.FETCHING
    return follower


# The beginning


def test_an_empty_log_is_filled_from_its_beginning():
    follower = PartitionFollower(1, 9, MemoryLog())
    assert follower.first_action() is None
    assert follower.next_request() == FollowerFetch(9, 0, -1, 0)


def test_it_asks_for_the_end_of_its_last_epoch_first():
    follower = PartitionFollower(1, 9, log_of(3, 3, 5, high_watermark=1))
    assert follower.first_action() is None
    ask = follower.next_request()
    assert ask == EpochEndRequest(9, 5)
    assert follower.on_epoch_end(ask, EpochEnd(5, 7)) == TruncateTo(3)
    assert follower.next_request() == FollowerFetch(9, 3, 5, 0)


def test_several_rounds_until_an_epoch_is_found_that_both_have():
    log = log_of(1, 1, 3, 3, 5, 5)
    follower = PartitionFollower(1, 9, log)
    follower.first_action()
    # The leader has epochs 1, 2 and 4, and never had 3 and 5.
    for asked, answer, cut, then_left in (
        (5, EpochEnd(4, 9), TruncateTo(4), FollowerState.TRUNCATING),  # ours up to 4 is 3, which ends at 4
        (3, EpochEnd(2, 5), TruncateTo(2), FollowerState.TRUNCATING),
        (1, EpochEnd(1, 1), TruncateTo(1), FollowerState.FETCHING),
    ):
        ask = follower.next_request()
        assert ask == EpochEndRequest(9, asked)
        assert follower.on_epoch_end(ask, answer) == cut
        assert follower.state is then_left
        log.truncate_to(cut.offset)
    assert follower.next_request() == FollowerFetch(9, 1, 1, 0)


def test_the_switch_that_cuts_to_the_high_watermark():
    follower = PartitionFollower(1, 9, log_of(3, 3, 5, high_watermark=1), Truncation.BY_HIGH_WATERMARK)
    assert follower.first_action() == TruncateTo(1)
    assert follower.next_request() == FollowerFetch(9, 3, -1, 0)


def test_records_from_before_there_were_epochs():
    log = log_of(3, 3, 3, high_watermark=2)
    log.epochs = []
    follower = PartitionFollower(1, 9, log)
    assert follower.first_action() == TruncateTo(2)
    assert follower.state is FollowerState.FETCHING


@pytest.mark.parametrize(
    ("leaders", "cut"),
    [
        (EpochEnd(5, 6), TruncationPoint(6, True)),
        (EpochEnd(5, 5), TruncationPoint(5, True)),  # the leader has less of it
        (EpochEnd(5, 99), TruncationPoint(6, True)),
        (EpochEnd(3, 3), TruncationPoint(3, True)),
        (EpochEnd(3, 9), TruncationPoint(4, True)),  # we have less of it
        (EpochEnd(4, 9), TruncationPoint(4, False)),  # we do not have it: is 3 the same?
        (EpochEnd(2, 9), TruncationPoint(2, False)),
        (EpochEnd(0, 0), TruncationPoint(0, True)),  # all that we have is newer
        (EpochEnd(-1, -1), TruncationPoint(1, True)),  # the leader knows nothing: to the high watermark
        (EpochEnd(-1, 4), TruncationPoint(4, True)),
        (EpochEnd(8, 4), TruncationPoint(4, True)),  # never so: newer than what was asked for
    ],
)
def test_where_to_cut(leaders, cut):
    assert truncation_point(log_of(1, 1, 3, 3, 5, 5, high_watermark=1), leaders) == cut


# Fetching


def test_records_are_appended_and_what_is_committed_of_them_is_known():
    log = log_of(3, 3)
    follower = fetching(log)
    ask = follower.next_request()
    assert follower.on_fetched(ask, FetchResult(high_watermark=9, log_start_offset=0, end_offset=5)) == AdvanceOffsets(
        5, 0
    )
    assert follower.on_fetched(ask, FetchResult(high_watermark=3, log_start_offset=0, end_offset=5)) == AdvanceOffsets(
        3, 0
    )
    assert follower.on_fetched(ask, FetchResult(high_watermark=1, log_start_offset=0)) == AdvanceOffsets(1, 0)


def test_what_was_committed_stays_so_when_a_new_leader_does_not_know_it_yet():
    follower = fetching(log_of(3, 3, high_watermark=2))
    assert follower.on_fetched(follower.next_request(), FetchResult(1, 0)) == AdvanceOffsets(2, 0)


def test_the_logs_start_follows_the_leaders():
    log = log_of(3, 3, 3, 3, high_watermark=4)
    log.log_start_offset = 1
    follower = fetching(log)
    ask = follower.next_request()
    assert ask == FollowerFetch(9, 4, 3, 1)
    assert follower.on_fetched(ask, FetchResult(4, 3)) == AdvanceOffsets(4, 3)
    assert follower.on_fetched(ask, FetchResult(4, 0)) == AdvanceOffsets(4, 1)


def test_a_leader_that_has_something_else_there():
    log = log_of(3, 3, 5, 5)
    follower = fetching(log)
    deed = follower.on_fetched(follower.next_request(), FetchResult(2, 0, diverging=EpochEnd(4, 3)))
    assert deed == TruncateTo(2)
    log.truncate_to(2)
    assert follower.next_request() == FollowerFetch(9, 2, 3, 0)


def test_late_answers_change_nothing():
    log = log_of(3, 3)
    follower = PartitionFollower(1, 9, log)
    follower.first_action()
    early = follower.next_request()
    follower.on_epoch_end(early, EpochEnd(3, 2))
    assert follower.on_epoch_end(early, EpochEnd(3, 0)) is None
    ask = follower.next_request()
    log.append([(3, "new")])
    assert follower.on_fetched(ask, FetchResult(2, 0, 3)) is None
    follower.on_error(ask, OffsetOutOfRange(""))
    assert follower.on_log_range(LogRangeRequest(9), 5, 9) is None
    assert follower.state is FollowerState.FETCHING


# What goes wrong


def test_a_fenced_follower_asks_no_more():
    for follower in (PartitionFollower(1, 9, log_of(3)), fetching(log_of(3))):
        follower.on_error(follower.next_request(), FencedLeaderEpoch(""))
        assert follower.state is FollowerState.FENCED
        assert follower.next_request() is None


@pytest.mark.parametrize("error", [UnknownLeaderEpoch(""), NotLeaderOrFollower("")])
def test_other_errors_are_waited_out(error):
    follower = fetching(log_of(3))
    ask = follower.next_request()
    follower.on_error(ask, error)
    assert follower.next_request() == ask


@pytest.mark.parametrize(
    ("leader_start", "leader_end", "deed"),
    [
        (5, 9, TruncateFully(5)),  # what we are missing is gone
        (0, 1, TruncateTo(1)),  # the leader has less
        (0, 2, None),
        (2, 2, None),
        (0, 9, None),
    ],
)
def test_out_of_range(leader_start, leader_end, deed):
    follower = fetching(log_of(3, 3))
    follower.on_error(follower.next_request(), OffsetOutOfRange(""))
    ask = follower.next_request()
    assert ask == LogRangeRequest(9)
    assert follower.on_log_range(ask, leader_start, leader_end) == deed
    assert follower.state is FollowerState.FETCHING
