"""Python values as values of columns: which ones fit, and that Spark returns the same values."""

from __future__ import annotations

import math
import pickle
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext
from enum import IntEnum, StrEnum

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, types

from headrace.pipeline.decoding.column_values import DoesNotFit, converter, row_converter
from headrace.pipeline.decoding.events import decode_frame
from headrace.pipeline.project.definition import Decode, FileText
from headrace.pipeline.spark.source.data_source import spark_schema

AT = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)
INTEGERS = {types.ByteType(): 8, types.ShortType(): 16, types.IntegerType(): 32, types.LongType(): 64}
Parts = namedtuple("Parts", "user ms")


class Number(IntEnum):
    SEVEN = 7


class Text(StrEnum):
    SEVEN = "seven"


@pytest.mark.parametrize(
    ("kind", "given_", "expected"),
    [
        (types.DoubleType(), 7, 7.0),
        (types.DoubleType(), Decimal("1.25"), 1.25),
        (types.DoubleType(), np.float32(0.5), 0.5),
        (types.DoubleType(), np.int64(7), 7.0),
        (types.DoubleType(), Number.SEVEN, 7.0),
        (types.FloatType(), 7, 7.0),
        (types.LongType(), np.int32(7), 7),
        (types.LongType(), np.uint64(7), 7),
        (types.LongType(), Number.SEVEN, 7),
        (types.DecimalType(9, 2), 7, Decimal("7.00")),
        (types.DecimalType(9, 2), Decimal("1.500"), Decimal("1.50")),
        (types.DecimalType(38, 0), 10**37, Decimal(10**37)),
        (types.BooleanType(), np.bool_(True), True),
        (types.StringType(), Text.SEVEN, "seven"),
        (types.StringType(), np.str_("é"), "é"),
        (types.BinaryType(), bytearray(b"x"), b"x"),
        (types.BinaryType(), memoryview(b"x"), b"x"),
        (types.DateType(), AT, AT),
        (types.TimestampType(), date(2026, 11, 16), datetime(2026, 11, 16, tzinfo=UTC)),
        (types.TimestampType(), datetime(2026, 11, 16, 8), datetime(2026, 11, 16, 8, tzinfo=UTC)),
        (types.TimestampType(), np.datetime64("2026-11-16T08:30:00", "us"), AT),
        (types.TimestampType(), pd.Timestamp(AT), AT),
        (types.TimestampNTZType(), datetime(2026, 11, 16, 8), datetime(2026, 11, 16, 8)),
        (types.DayTimeIntervalType(), timedelta(seconds=7), timedelta(seconds=7)),
        (types.ArrayType(types.DoubleType()), (1, None, 2.5), [1.0, None, 2.5]),
        (types.ArrayType(types.LongType()), np.array([1, 2]), [1, 2]),
        (types.MapType(types.StringType(), types.DoubleType()), {"a": 1}, {"a": 1.0}),
    ],
)
def test_what_widens(kind, given_, expected):
    made = converter(kind)(given_)
    assert made == expected
    if not isinstance(expected, datetime):
        assert type(made) is type(expected)


@pytest.mark.parametrize(
    ("kind", "given_", "complaint"),
    [
        (types.LongType(), "7", "BIGINT cannot hold '7' (str)"),
        (types.LongType(), True, "BIGINT cannot hold True (bool)"),
        (types.LongType(), 7.0, "BIGINT cannot hold 7.0 (float)"),
        (types.LongType(), Decimal(7), "BIGINT cannot hold Decimal('7') (Decimal)"),
        (types.LongType(), 2**63, "BIGINT cannot hold 9223372036854775808 (int)"),
        (types.LongType(), np.uint64(2**63), "BIGINT cannot hold"),
        (types.ByteType(), 128, "TINYINT cannot hold 128 (int)"),
        (types.DoubleType(), True, "DOUBLE cannot hold True (bool)"),
        (types.DoubleType(), "1.5", "DOUBLE cannot hold '1.5' (str)"),
        (types.DoubleType(), 10**400, "DOUBLE cannot hold an integer of 1329 bits (int)"),
        (types.DecimalType(5, 2), Decimal("1.239"), "DECIMAL(5,2) cannot hold Decimal('1.239') (Decimal)"),
        (types.DecimalType(5, 2), 1000, "DECIMAL(5,2) cannot hold 1000 (int)"),
        (types.DecimalType(5, 2), 1.5, "DECIMAL(5,2) cannot hold 1.5 (float)"),
        (types.DecimalType(5, 2), Decimal("NaN"), "DECIMAL(5,2) cannot hold Decimal('NaN') (Decimal)"),
        (types.DecimalType(5, 2), Decimal("Infinity"), "DECIMAL(5,2) cannot hold Decimal('Infinity') (Decimal)"),
        (types.BooleanType(), 1, "BOOLEAN cannot hold 1 (int)"),
        (types.StringType(), b"x", "STRING cannot hold b'x' (bytes)"),
        (types.StringType(), 7, "STRING cannot hold 7 (int)"),
        (types.StringType(), "é\ud800", "STRING cannot hold half of a surrogate pair, at position 1"),
        (types.BinaryType(), "x", "BINARY cannot hold 'x' (str)"),
        (types.BinaryType(), [1, 2], "BINARY cannot hold [1, 2] (list)"),
        (types.DateType(), "2026-11-16", "DATE cannot hold '2026-11-16' (str)"),
        (types.DateType(), pd.NaT, "DATE cannot hold NaT"),
        (types.TimestampType(), 1763281800, "TIMESTAMP cannot hold 1763281800 (int)"),
        (types.TimestampType(), pd.NaT, "TIMESTAMP cannot hold NaT"),
        (types.TimestampType(), datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), "TIMESTAMP cannot hold"),
        (types.DayTimeIntervalType(), 7, "INTERVAL DAY TO SECOND cannot hold 7 (int)"),
        (types.ArrayType(types.LongType()), [1, "x"], "[1]: BIGINT cannot hold 'x' (str)"),
        (types.ArrayType(types.LongType(), False), [None], "[0]: missing, but the schema says NOT NULL"),
        (types.ArrayType(types.StringType()), "abc", "ARRAY<STRING> cannot hold 'abc' (str)"),
        (types.MapType(types.StringType(), types.LongType()), {1: 1}, "[1]: STRING cannot hold 1 (int)"),
        (types.MapType(types.StringType(), types.LongType()), {None: 1}, "[None]: missing"),
        (types.MapType(types.StringType(), types.LongType()), [("a", 1)], "MAP<STRING,BIGINT> cannot hold"),
    ],
)
def test_what_does_not_fit(kind, given_, complaint):
    with pytest.raises(DoesNotFit) as caught:
        converter(kind)(given_)
    assert str(caught.value).startswith(complaint)


RECORD_COLUMNS = (
    types.StructType().add("x", types.DoubleType(), nullable=False).add("tags", types.ArrayType(types.StringType()))
)
COLUMNS = (
    types.StructType().add("ms", types.LongType()).add("user", types.StringType(), False).add("at", RECORD_COLUMNS)
)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"user": "ann", "ms": 7, "at": {"x": 1, "more": 2}}, (7, "ann", (1.0, None))),
        ([7, "ann", (1, ["a"])], (7, "ann", (1.0, ["a"]))),
        (Row(user="ann", ms=7, at=Row(tags=None, x=1)), (7, "ann", (1.0, None))),
        (Row("a", "b", "c")(7, "ann", None), (7, "ann", None)),
    ],
)
def test_rows_by_name_and_by_position(made, expected):
    assert row_converter(COLUMNS)(made) == expected


def test_a_named_tuple_is_taken_by_its_names():
    columns = types.StructType().add("ms", types.StringType()).add("user", types.StringType())
    assert row_converter(columns)(Parts(user="ann", ms="7")) == ("7", "ann")


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        ({"ms": 7}, "user: missing, but the schema says NOT NULL"),
        ({"user": "ann", "ms": "x"}, "ms: BIGINT cannot hold 'x' (str)"),
        ({"user": "ann", "at": {}}, "at.x: missing, but the schema says NOT NULL"),
        ({"user": "ann", "at": {"x": 1, "tags": ["a", 1]}}, "at.tags[1]: STRING cannot hold 1 (int)"),
        ({"user": "ann", "at": 7}, "at: STRUCT<X:DOUBLE,TAGS:ARRAY<STRING>> cannot hold 7 (int)"),
        ((1, 2), "the function returned tuple, not a mapping or 3 values"),
        (None, "the function returned nothing, not a mapping or 3 values"),
    ],
)
def test_rows_that_do_not_fit(made, complaint):
    with pytest.raises((DoesNotFit, TypeError)) as caught:
        row_converter(COLUMNS)(made)
    assert str(caught.value) == complaint


# ------------------------------------------------------------------------------------------- any value for any column

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.decimals(),
    st.booleans(),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
)
TIMES = st.one_of(st.datetimes(), st.dates(), st.datetimes(timezones=st.just(UTC)), st.timedeltas())
SIMPLE = st.one_of(NUMBERS, st.text(st.characters(codec=None)), st.binary(), TIMES)
VALUES = st.one_of(st.none(), SIMPLE, st.lists(SIMPLE, max_size=3), st.dictionaries(st.text(), SIMPLE, max_size=3))
SCALARS = [
    *INTEGERS, types.FloatType(), types.DoubleType(), types.DecimalType(5, 2), types.DecimalType(38, 18),
    types.BooleanType(), types.StringType(), types.BinaryType(), types.DateType(), types.TimestampType(),
    types.TimestampNTZType(), types.DayTimeIntervalType(),
]  # fmt: skip
TYPES = [
    *SCALARS,
    *(types.ArrayType(each) for each in SCALARS),
    *(types.MapType(types.StringType(), each) for each in SCALARS),
    types.StructType().add("a", types.DoubleType()).add("b", types.StringType()),
]


@settings(max_examples=500, deadline=None)
@given(kind=st.sampled_from(list(INTEGERS)), value=NUMBERS)
def test_an_integer_is_the_same_number_or_does_not_fit(kind, value):
    limit = 2 ** (INTEGERS[kind] - 1)
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    try:
        made = converter(kind)(value)
    except DoesNotFit:
        assert not is_whole or not -limit <= int(value) < limit
    else:
        assert is_whole
        assert made == int(value)


@settings(max_examples=500, deadline=None)
@given(precision=st.integers(1, 38), scale=st.integers(0, 38), value=NUMBERS)
def test_a_decimal_is_the_same_number_or_does_not_fit(precision, scale, value):
    scale = min(scale, precision)
    try:
        made = converter(types.DecimalType(precision, scale))(value)
    except DoesNotFit:
        return
    assert made == int(value) if isinstance(value, np.integer) else made == value
    assert -made.as_tuple().exponent == scale
    with localcontext(prec=60):
        assert abs(made) * 10**scale < 10**precision


@settings(max_examples=500, deadline=None)
@given(value=NUMBERS)
def test_a_double_is_the_nearest_number_or_does_not_fit(value):
    is_number = not isinstance(value, bool)
    try:
        made = converter(types.DoubleType())(value)
    except DoesNotFit:
        assert not is_number or (isinstance(value, int) and abs(value) > 10**308) or Decimal(value).is_snan()
    else:
        assert is_number
        assert type(made) is float
        assert made == float(value) or (math.isnan(made) and math.isnan(value))


DECODER = FileText("d.py", "import pickle\ndef decode(value):\n    return pickle.loads(value)\n", "decode")
WIDE = types.StructType([types.StructField(f"c{at}", kind) for at, kind in enumerate(TYPES)])


@settings(max_examples=8, deadline=None)
@given(values=st.lists(st.tuples(st.integers(0, len(TYPES) - 1), VALUES), min_size=30, max_size=120))
def test_spark_gives_back_what_fits_and_the_rest_is_bad_with_its_column(spark, values):
    records = [pickle.dumps({f"c{at}": value}) for at, value in values]
    decode = Decode("python", _ddl(WIDE), function=DECODER)
    rows = [(None, record, "t", 0, offset, AT, 0) for offset, record in enumerate(records)]
    raw = spark.createDataFrame(rows, spark_schema(include_headers=False))
    found = decode_frame(decode, raw).toArrow().sort_by("_offset").to_pylist()
    for (at, value), row in zip(values, found, strict=True):
        try:
            expected = None if value is None else converter(TYPES[at])(value)
        except DoesNotFit:
            assert row["_error"].startswith(f"c{at}"), row["_error"]
        else:
            assert row["_error"] is None
            assert _plain(row[f"c{at}"], TYPES[at]) == _plain(expected, TYPES[at])


def _ddl(columns: types.StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns)


def _plain(value: object, kind: types.DataType) -> object:
    """Comparable: NaN equals NaN, a FLOAT has the digits of one, maps and structs are lists of their parts."""
    if value is None:
        return None
    if isinstance(kind, types.ArrayType):
        return [_plain(each, kind.elementType) for each in value]
    if isinstance(kind, types.MapType):
        entries = value.items() if isinstance(value, dict) else value
        return sorted((key, repr(_plain(each, kind.valueType))) for key, each in entries)
    if isinstance(kind, types.StructType):
        parts = value.values() if isinstance(value, dict) else value
        return [_plain(each, field.dataType) for each, field in zip(parts, kind, strict=True)]
    if isinstance(kind, (types.FloatType, types.DoubleType)):
        with np.errstate(over="ignore"):  # a number that is too large for a FLOAT is infinity, as in Spark
            return repr(np.float32(value) if isinstance(kind, types.FloatType) else np.float64(value))
    return value.date() if isinstance(kind, types.DateType) and isinstance(value, datetime) else value
