"""Ranges of offsets: splitting, sharing out, and what filters leave of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.types import TopicPartition
from headrace.pipeline.ranges import Bounds, OffsetRange, share_out, split

ranges = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange("t", partition, start, start + size),
        st.integers(0, 9),
        st.integers(0, 100),
        st.integers(0, 1000),
    ),
    max_size=5,
)


def test_a_range_becomes_a_task():
    assert split([OffsetRange("t", 0, 5, 9), OffsetRange("t", 1, 7, 7)]) == [OffsetRange("t", 0, 5, 9)]


def test_no_task_reads_more_than_it_may():
    assert split([OffsetRange("t", 0, 0, 10)], max_records=4) == [
        OffsetRange("t", 0, 0, 3),
        OffsetRange("t", 0, 3, 6),
        OffsetRange("t", 0, 6, 10),
    ]


def test_large_ranges_are_cut_until_there_are_enough_tasks():
    pieces = split([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 10)], min_partitions=4)
    assert [(one.partition, one.size) for one in pieces] == [(0, 33), (0, 33), (0, 34), (1, 10)]


def test_there_are_no_more_tasks_than_offsets():
    assert split([OffsetRange("t", 0, 0, 2)], min_partitions=10) == [
        OffsetRange("t", 0, 0, 1),
        OffsetRange("t", 0, 1, 2),
    ]
    assert split([], min_partitions=3) == []


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_splitting_loses_nothing_and_doubles_nothing(whole, min_partitions, max_records):
    pieces = split(whole, min_partitions=min_partitions, max_records=max_records)
    assert all(one.size > 0 for one in pieces)
    assert max_records is None or all(one.size <= max_records for one in pieces)
    offsets = sum(one.size for one in whole)
    assert len(pieces) >= min(min_partitions or 0, offsets)
    assert sorted((one.partition, at) for one in pieces for at in range(one.start, one.end)) == sorted(
        (one.partition, at) for one in whole for at in range(one.start, one.end)
    )


def test_a_limit_is_shared_in_proportion():
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert share_out({a: 900, b: 90, c: 10}, 100) == {a: 90, b: 9, c: 1}
    assert share_out({a: 3, b: 4}, 100) == {a: 3, b: 4}


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 10_000), max_size=8), st.integers(1, 5_000))
def test_a_limit_is_used_up_and_nobody_gets_what_he_has_not(waiting, limit):
    by_place = {TopicPartition("t", number): count for number, count in waiting.items()}
    shares = share_out(by_place, limit)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= shares[place] <= count for place, count in by_place.items())


WHOLE = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 60), OffsetRange("u", 0, 0, 5)]


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([("EqualTo", "topic", "u")], [OffsetRange("u", 0, 0, 5)]),
        ([("In", "topic", ("u", "v", None))], [OffsetRange("u", 0, 0, 5)]),
        ([("EqualTo", "partition", 1)], [OffsetRange("t", 1, 50, 60)]),
        ([("In", "partition", (1, 2))], [OffsetRange("t", 1, 50, 60)]),
        ([("EqualTo", "partition", 1), ("EqualTo", "partition", 0)], []),
        (
            [("GreaterThan", "offset", 57), ("LessThan", "offset", 70)],
            [WHOLE[0]._replace(start=58, end=70), WHOLE[1]._replace(start=58)],
        ),
        ([("GreaterThanOrEqual", "offset", 99)], [WHOLE[0]._replace(start=99)]),
        ([("LessThanOrEqual", "offset", 0)], [WHOLE[0]._replace(end=1), WHOLE[2]._replace(end=1)]),
        ([("EqualTo", "offset", 55)], [WHOLE[0]._replace(start=55, end=56), WHOLE[1]._replace(start=55, end=56)]),
        ([("EqualTo", "offset", -3)], []),
        ([("IsNotNull", "offset", None)], WHOLE),
    ],
)
def test_filters_narrow_the_ranges(filters, left):
    bounds = Bounds()
    for one in filters:
        bounds = bounds.with_filter(*one)
        assert bounds is not None
    assert bounds.narrow(WHOLE) == left


@pytest.mark.parametrize(
    "one",
    [
        ("EqualTo", "value", b"x"),
        ("IsNotNull", "key", None),
        ("IsNull", "offset", None),
        ("StringStartsWith", "topic", "t"),
        ("EqualTo", "partition", "1"),
        ("GreaterThan", "partition", 1),
        ("In", "offset", (1, 2)),
        ("EqualTo", "timestamp", datetime(2026, 1, 1)),
        ("EqualNullSafe", "offset", 3),
    ],
)
def test_other_filters_are_left_to_spark(one):
    assert Bounds().with_filter(*one) is None


def _at(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, 1, microseconds, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "at", "first_ms", "last_ms"),
    [
        ("GreaterThan", _at(500_000), 1501, None),
        ("GreaterThan", _at(500_001), 1501, None),
        ("GreaterThanOrEqual", _at(500_000), 1500, None),
        ("GreaterThanOrEqual", _at(500_001), 1501, None),
        ("LessThan", _at(500_000), None, 1499),
        ("LessThan", _at(500_001), None, 1500),
        ("LessThanOrEqual", _at(500_001), None, 1500),
        ("EqualTo", _at(500_000), 1500, 1500),
    ],
)
def test_microseconds_of_a_filter_meet_milliseconds_of_records(kind, at, first_ms, last_ms):
    bounds = Bounds().with_filter(kind, "timestamp", at)
    assert bounds is not None
    everything = Bounds()
    assert bounds.min_timestamp_ms == (everything.min_timestamp_ms if first_ms is None else first_ms)
    assert bounds.max_timestamp_ms == (everything.max_timestamp_ms if last_ms is None else last_ms)
    assert bounds.narrow(WHOLE) == WHOLE


def test_no_record_has_a_time_between_milliseconds():
    bounds = Bounds().with_filter("EqualTo", "timestamp", _at(500_001))
    assert bounds is not None
    assert bounds.narrow(WHOLE) == []
