"""The choice and the names of mirrored topics; records split by topic, and paired with their target offsets."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.arrow.tables import arrow_schema
from headrace.client.mirror.chunks import offset_pieces, split_by_topic
from headrace.client.mirror.group_offsets import translated
from headrace.client.mirror.offset_translation import OffsetTranslation, Piece, Run
from headrace.client.mirror.topic_names import NamesClash, TopicNames
from headrace.client.types import OffsetAndMetadata, TopicPartition


def test_patterns_are_for_whole_names():
    names = TopicNames("orders,pay.*", "payroll")
    assert names.plan(["orders", "orders-2", "payments", "payroll", "xorders"]) == {
        "orders": "orders",
        "payments": "payments",
    }


def test_a_prefix_and_new_names():
    names = TopicNames(".*", None, {"a": "b", "gone": "away"}, "berlin.")
    assert names.plan(["a", "c", "berlin.c"]) == {"a": "b", "c": "berlin.c"}
    assert TopicNames(None, None, {"a": "b"}).plan(["a", "c"]) == {"a": "b"}


def test_what_is_internal_stays():
    names = TopicNames(".*", None)
    assert names.plan(["__consumer_offsets", "headrace-mirror.x.offset-syncs", "_mine"]) == {"_mine": "_mine"}


def test_two_topics_do_not_become_one():
    with pytest.raises(NamesClash, match="a and b would both have the name b at the target"):
        TopicNames(".*", None, {"a": "b"}).plan(["b", "a"])


def test_a_pattern_that_is_none():
    with pytest.raises(ValueError, match="is not a regular expression"):
        TopicNames("(", None)


def polled(rows):
    """Rows of (topic, partition, offset)."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": topic, "partition": partition, "offset": offset, "timestamp": offset, "timestamp_type": 0,
                "key": None, "value": b"%d" % offset, "headers": [],
            }
            for topic, partition, offset in rows
        ],
        schema=arrow_schema(include_headers=True),
    )  # fmt: skip


def test_records_are_split_by_topic():
    chunks = split_by_topic(polled([("a", 0, 5), ("a", 0, 6), ("b", 0, 1), ("a", 1, 0), ("a", 0, 9)]))
    assert [(c.topic, {p: o.tolist() for p, o in c.offsets.items()}) for c in chunks] == [
        ("a", {0: [5, 6, 9], 1: [0]}),
        ("b", {0: [1]}),
    ]
    assert chunks[0].table.column("value").to_pylist() == [b"5", b"6", b"0", b"9"]
    assert chunks[0].table.column_names == ["partition", "timestamp", "key", "value", "headers"]


def test_pieces_end_at_gaps_on_either_side():
    source = np.array([0, 1, 2, 5, 6, 7, 8, 9])
    assert offset_pieces(source, [(10, 2), (12, 3), (20, 3)]) == [Piece(0, 10, 3), Piece(5, 13, 2), Piece(7, 20, 3)]
    assert offset_pieces(source, [(-1, 4), (20, 4)]) == [Piece(6, 20, 4)]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5))))
def test_pieces_are_all_records(steps, batches):
    source = np.cumsum(np.array(steps))
    placed, left, at = [], len(source), 0
    for gap, count in [*batches, (0, left)]:
        count = min(count, left)
        if count:
            placed.append((at + gap, count))
            left, at = left - count, at + gap + count
    there = [first + at for first, count in placed for at in range(count)]
    found = [
        (p.source_first + at, p.target_first + at) for p in offset_pieces(source, placed) for at in range(p.length)
    ]
    assert found == list(zip(source.tolist(), there, strict=True))


def test_groups_move_forward_only():
    at = TopicPartition
    translations = {at("there", 0): OffsetTranslation([Run(0, 0, 100, 50)]), at("there", 1): OffsetTranslation()}
    at_source = {at("here", 0): OffsetAndMetadata(20, "mine"), at("here", 1): OffsetAndMetadata(3)}
    at_source[at("other", 0)] = OffsetAndMetadata(9)
    names = {"here": "there"}
    assert translated(at_source, {}, names, translations) == {at("there", 0): OffsetAndMetadata(120, "mine")}
    assert translated(at_source, {at("there", 0): OffsetAndMetadata(120)}, names, translations) == {}
    assert translated(at_source, {at("there", 0): OffsetAndMetadata(7)}, names, translations)
