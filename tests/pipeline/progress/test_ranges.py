"""Ranges of offsets: splitting them, and sharing a limit among partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.ranges import OffsetRange, share_out, split

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
