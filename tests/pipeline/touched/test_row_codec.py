"""State comes back from its encoding exactly, whatever its type."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.touched.row_codec import RowCodec, identities

_DAY = datetime.datetime(2026, 11, 17, 8, 30, 0, 123456)
_COLUMNS = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-128, 0, None], pa.int8()),
    "long": pa.array([-(1 << 63), (1 << 63) - 1, None], pa.int64()),
    "float": pa.array([0.1, -0.0, None], pa.float32()),
    "double": pa.array([0.1, -0.0, None], pa.float64()),
    "decimal": pa.array([Decimal("12345678901234567890.123456789012345678"), Decimal("-0.000000000000000001"), None],
                        pa.decimal128(38, 18)),
    "text": pa.array(["", "a\x00b'\"\\", None]),
    "wrong text": pa.array([b"\xff\xfe", b"", None], pa.binary()).cast(pa.binary()),
    "date": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    "far away": pa.array([-(1 << 60), 1 << 60, None], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "time": pa.array([_DAY, datetime.datetime(1960, 1, 1), None], pa.timestamp("us")),
    "interval": pa.array([datetime.timedelta(days=-3, microseconds=1), datetime.timedelta(0), None], pa.duration("us")),
    "list": pa.array([[1.5, None, -0.0], [], None], pa.list_(pa.float64())),
    "struct": pa.array([{"at": _DAY, "by": b"\x00\xff"}, {"at": None, "by": None}, None],
                       pa.struct([("at", pa.timestamp("us", "UTC")), ("by", pa.binary())])),
    "map": pa.array([[("k", Decimal("1.50")), ("l", None)], [], None], pa.map_(pa.string(), pa.decimal128(10, 2))),
    "nothing": pa.nulls(3),
}  # fmt: skip


@pytest.mark.parametrize("name", _COLUMNS)
def test_a_column_comes_back_exactly(name):
    rows = pa.table({name: _COLUMNS[name]})
    codec = RowCodec(rows.schema)
    (encoded,) = codec.encode(rows)
    assert all(value is None or isinstance(value, int | bytes | str) for value in encoded), "a driver stores these"
    (back,) = codec.decode([encoded]).columns
    assert back.type == rows.column(0).type
    assert repr(back.to_pylist() if name != "far away" else back.cast(pa.int64()).to_pylist()) == repr(
        rows.column(0).to_pylist() if name != "far away" else rows.column(0).cast(pa.int64()).to_pylist()
    )


def test_texts_that_are_not_utf_8_come_back():
    raw = pa.array([b"\xff", None], pa.binary())
    rows = pa.table({"text": raw.view(pa.string())})
    codec = RowCodec(rows.schema)
    assert codec.decode(codec.encode(rows)).column(0).cast(pa.binary()).to_pylist() == [b"\xff", None]


def test_nan_is_one_value_and_zero_is_two():
    rows = pa.table({"x": pa.array([math.nan, -math.nan, 0.0, -0.0])})
    one, other, zero, minus_zero = identities(RowCodec(rows.schema).encode(rows), 4)
    assert one == other
    assert zero != minus_zero


def test_identities_tell_a_null_from_its_neighbour():
    rows = pa.table({"a": pa.array([1, None]), "b": pa.array([None, 1])})
    one, other = identities(RowCodec(rows.schema).encode(rows), 2)
    assert one != other


def test_rows_without_columns_are_equal():
    assert len(set(identities([], 3))) == 1


def test_a_type_that_cannot_be_kept_is_refused():
    with pytest.raises(UnsuitableSchema, match="month_day_nano"):
        RowCodec(pa.schema([("x", pa.month_day_nano_interval())]))
