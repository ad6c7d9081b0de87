"""Bags of rows: what adds up, what is left over."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.row_codec import RowCodec

_CODEC = RowCodec(pa.schema([("c0", pa.string())]))


def bag(**counts: int) -> Bag:
    """Rows of one text each; the key is its first character."""
    rows = pa.table({"c0": pa.array(list(counts), pa.string())})
    weights = np.asarray(list(counts.values()), dtype=np.int64)
    return Bag.of(_CODEC, rows, [ord(name[0]) for name in counts], weights)


def contents(of: Bag) -> dict[str, int]:
    return dict(zip(of.rows["c0"].to_pylist(), of.counts, strict=True))


def test_rows_without_columns_are_counted():
    none = RowCodec(pa.schema([]))
    made = Bag.of(none, pa.table({"other": [1, 2, 3]}).select([]).cast(none.schema), [0, 0, 0], np.asarray([1, 1, 1]))
    assert made.counts == [3]
    assert made.plus(made).counts == [6]
    assert made.copies().num_rows == 3


def test_equal_rows_are_one_row_with_a_count():
    rows = pa.table({"c0": ["a", "b", "a"]})
    made = Bag.of(_CODEC, rows, [1, 2, 1], np.asarray([1, 1, 1]))
    assert contents(made) == {"a": 2, "b": 1}
    assert made.keys == [1, 2]


def test_a_row_that_comes_and_goes_is_left_out():
    rows = pa.table({"c0": ["a", "b", "a"]})
    assert contents(Bag.of(_CODEC, rows, [1, 2, 1], np.asarray([1, 1, -1]))) == {"b": 1}


def test_bags_add_up():
    assert contents(bag(a=2, b=1).plus(bag(b=-1, c=3, a=1))) == {"a": 3, "c": 3}
    assert contents(bag(a=2).plus(Bag.empty(_CODEC))) == {"a": 2}
    assert contents(Bag.empty(_CODEC).plus(bag(a=2))) == {"a": 2}
    assert not bag(a=2).plus(bag(a=-2))


def test_parts_of_a_change_have_positive_counts():
    change = bag(a=2, b=-3)
    assert contents(change.part(is_positive=True)) == {"a": 2}
    assert contents(change.part(is_positive=False)) == {"b": 3}


def test_rows_of_some_keys():
    whole = bag(a=1, ab=2, b=3)
    assert contents(whole.of_keys(frozenset([ord("a")]))) == {"a": 1, "ab": 2}
    assert contents(whole.of_keys(frozenset([ord("a")]), is_in=False)) == {"b": 3}


def test_copies_do_not_depend_on_the_order_of_the_bag():
    one, other = bag(a=2, b=1).copies(), bag(b=1, a=2).copies()
    assert one["c0"].to_pylist() == other["c0"].to_pylist()
    assert sorted(one["c0"].to_pylist()) == ["a", "a", "b"]
    assert bag(a=2).copies(are_needed=False)["c0"].to_pylist() == ["a"]


def test_a_bag_of_rows_cannot_have_negative_counts():
    with pytest.raises(AssertionError, match="negative"):
        bag(a=-1).copies()
