"""Offsets of the log: compared, updated, and the ranges to read between them."""

from __future__ import annotations

from headrace.client.types import TopicPartition
from headrace.pipeline.progress.offsets import (
    by_partition,
    by_topic,
    is_before,
    is_same,
    offset_at,
    offsets_between,
    ranges_between,
    updated,
)
from headrace.pipeline.progress.ranges import OffsetRange


def test_what_is_not_named_has_not_been_read():
    point = {"a": {0: 1}}
    assert is_before({}, point)
    assert not is_before(point, {})
    assert is_same({}, {"a": {0: 0}})
    assert [offset_at(point, TopicPartition("a", at)) for at in (0, 1)] == [1, 0]


def test_points_may_be_neither_before_nor_behind():
    assert not is_before({"a": {0: 1}, "b": {0: 0}}, {"a": {0: 0}, "b": {0: 1}})
    assert not is_before({"a": {0: 0}, "b": {0: 1}}, {"a": {0: 1}, "b": {0: 0}})


def test_updated():
    assert updated({"a": {0: 3}}, {"a": {1: 2}, "b": {0: 1}}) == {"a": {0: 3, 1: 2}, "b": {0: 1}}


def test_by_topic_and_back():
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 3, TopicPartition("a", 2): 2}
    point = by_topic(offsets)
    assert [(topic, list(partitions.items())) for topic, partitions in point.items()] == [
        ("a", [(2, 2), (10, 3)]),
        ("b", [(0, 1)]),
    ]
    assert by_partition(point) == offsets


def test_what_is_between():
    read, ends = {"a": {0: 5, 2: 9}}, {"a": {0: 8, 1: 3, 2: 7}, "b": {0: 0}}
    assert offsets_between(read, ends) == 6
    whole = [OffsetRange("a", 0, 5, 8), OffsetRange("a", 1, 0, 3)]
    assert ranges_between(read, ends) == ranges_between(read, ends, limit=100) == whole
    assert sum(one.size for one in ranges_between(read, ends, limit=4)) == 4
