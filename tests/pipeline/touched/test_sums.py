"""The sums of a group: rows are added and subtracted exactly."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.sums import added_up

_CODEC = RowCodec(pa.schema([("c0", pa.string()), ("c1", pa.int64()), ("c2", pa.decimal128(38, 2))]))
Row = tuple[str | None, int, str]


def bag(*rows: tuple[Row, int]) -> Bag:
    columns = list(zip(*(row for row, _ in rows), strict=True)) or [(), (), ()]
    texts, counts, sums = columns
    arrays = [texts, counts, [Decimal(each) for each in sums]]
    pairs = zip(arrays, _CODEC.schema, strict=True)
    table = pa.table([pa.array(each, field.type) for each, field in pairs], schema=_CODEC.schema)
    keys = [0 if text is None else ord(text) for text in texts]
    return Bag.of(_CODEC, table, keys, np.asarray([weight for _, weight in rows], dtype=np.int64))


def rows_of(found: Bag) -> dict[Row, int]:
    columns = (found.rows.column(name).to_pylist() for name in _CODEC.schema.names)
    rows = [(text, count, str(total)) for text, count, total in zip(*columns, strict=True)]
    return dict(zip(rows, found.counts, strict=True))


def change(old: Bag, rows: Bag) -> dict[Row, int]:
    return rows_of(added_up(_CODEC, 1, old, rows))


def test_rows_are_added_to_the_row_of_their_group():
    old = bag((("a", 2, "1.50"), 1))
    new = bag((("a", 1, "0.25"), 3), ((None, 1, "7.00"), 1))
    assert change(old, new) == {("a", 2, "1.50"): -1, ("a", 5, "2.25"): 1, (None, 1, "7.00"): 1}


def test_a_group_without_rows_is_gone():
    old = bag((("a", 2, "1.50"), 1))
    assert change(old, bag((("a", 1, "0.75"), -2))) == {("a", 2, "1.50"): -1}


def test_nothing_changes_if_the_sums_do_not():
    old = bag((("a", 2, "1.50"), 1))
    assert change(old, bag((("a", 1, "1.00"), -1), (("a", 1, "0.50"), 1), (("a", 1, "0.50"), 0))) == {
        ("a", 2, "1.50"): -1,
        ("a", 2, "1.00"): 1,
    }
    assert change(old, bag((("a", 0, "0.00"), 1))) == {}


def test_sums_keep_all_digits():
    large = "123456789012345678901234567890123456.78"
    assert change(bag(((None, 1, large), 1)), bag(((None, 1, "0.01"), 1))) == {
        (None, 1, large): -1,
        (None, 2, "123456789012345678901234567890123456.79"): 1,
    }


def test_several_kept_rows_of_a_group_become_one():
    old = bag((("a", 1, "1.00"), 3), (("a", 1, "2.00"), 1))
    assert change(old, bag((("a", 1, "5.00"), 1))) == {
        ("a", 1, "1.00"): -3,
        ("a", 1, "2.00"): -1,
        ("a", 5, "10.00"): 1,
    }


def test_a_total_has_no_group():
    codec = RowCodec(pa.schema([("c0", pa.int64())]))

    def counted(count: int, weight: int) -> Bag:
        rows = pa.table([pa.array([count], pa.int64())], schema=codec.schema)
        return Bag.of(codec, rows, [0], np.asarray([weight]))

    found = added_up(codec, 0, counted(4, 1), counted(1, -4))
    assert (found.rows["c0"].to_pylist(), found.counts) == ([4], [-1])


def test_the_time_of_a_group_is_not_added_up():
    codec = RowCodec(pa.schema([("c0", pa.string()), ("c1", pa.int64()), ("c2", pa.int64())]))

    def counted(*rows: tuple[str, int, int]) -> Bag:
        columns = zip(*rows, strict=True)
        table = pa.table([pa.array(each) for each in columns], schema=codec.schema)
        return Bag.of(codec, table, [0] * len(rows), np.ones(len(rows), dtype=np.int64))

    found = added_up(codec, 1, counted(("a", 2, 70)), counted(("a", 1, 70), ("b", 1, 80)), has_times=True)
    rows = zip(*(found.rows[name].to_pylist() for name in codec.schema.names), found.counts, strict=True)
    assert sorted(rows) == [("a", 2, 70, -1), ("a", 3, 70, 1), ("b", 1, 80, 1)]
