"""Converts Arrow types to column types of a database, and Arrow columns to stored values and back.

=====================  =========================  ========================================
Arrow                  PostgreSQL                 SQLite
=====================  =========================  ========================================
bool                   BOOLEAN                    0 and 1 (answers have true and false)
int8 .. int64          SMALLINT, INTEGER, BIGINT  INTEGER
float, double          REAL, DOUBLE PRECISION     REAL; NaN becomes NULL, SQLite has none
decimal(p, s)          NUMERIC(p, s)              NUMERIC: 15 digits; TEXT, exact, where asked
string                 TEXT; U+0000 as U+FFFD     TEXT
binary                 BYTEA                      BLOB
date                   DATE                       2026-11-16
timestamp              TIMESTAMP                  2026-11-16 08:30:00[.123456]
timestamp with zone    TIMESTAMPTZ                the same, in UTC
struct, list, map      JSONB                      JSON text
duration               BIGINT, microseconds       the same
=====================  =========================  ========================================

Times without a fraction are stored without one: such texts still sort by time, and equal the literal that a reader
types. Text that is not UTF-8 (Spark does not check when it casts bytes) is stored with U+FFFD in place of the wrong
bytes: one record must not stop a view. For the same reason a time before the year 1 or after the year 9999
(milliseconds used as seconds) is stored as the first or last time of these years: drivers cannot represent others.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.queries.formats import jsonable

_REPLACEMENT = "\ufffd"


def column_type(field: pa.Field, *, exact: bool = False) -> TypeEngine[Any]:
    """The column type for this field.

    :param exact: whether decimals keep all digits in SQLite, as text. SQL in SQLite does not treat it as a number.
    """
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_decimal(kind):
        numeric = sqlalchemy.Numeric(kind.precision, kind.scale)
        return _text_in_sqlite(numeric) if exact else numeric
    if pa.types.is_timestamp(kind):
        return _text_in_sqlite(sqlalchemy.TIMESTAMP(timezone=kind.tz is not None))
    if pa.types.is_nested(kind):
        return sqlalchemy.JSON().with_variant(JSONB(), "postgresql")
    for is_of_kind, made in _TYPES:
        if is_of_kind(kind):
            return made
    raise UnsuitableSchema(f"column {field.name!r} has the type {kind}, which no table can store: cast it in the query")


def _text_in_sqlite(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    return kind.with_variant(sqlalchemy.Text(), "sqlite")


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], TypeEngine[Any]], ...] = (
    (pa.types.is_boolean, sqlalchemy.Boolean()),
    (lambda kind: kind in (pa.int8(), pa.int16(), pa.uint8()), sqlalchemy.SmallInteger()),
    (lambda kind: kind in (pa.int32(), pa.uint16()), sqlalchemy.Integer()),
    (lambda kind: kind in (pa.int64(), pa.uint32()), sqlalchemy.BigInteger()),
    (pa.types.is_uint64, sqlalchemy.Numeric(20, 0)),
    (lambda kind: kind in (pa.float16(), pa.float32()), sqlalchemy.REAL()),
    (pa.types.is_float64, sqlalchemy.Double()),
    (lambda kind: _is_text(kind) or pa.types.is_null(kind), sqlalchemy.Text()),
    (lambda kind: _is_binary(kind), sqlalchemy.LargeBinary()),
    (pa.types.is_date, _text_in_sqlite(sqlalchemy.Date())),
    (pa.types.is_time, _text_in_sqlite(sqlalchemy.Time())),
    (pa.types.is_duration, sqlalchemy.BigInteger()),
)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


# -------------------------------------------------------------------------------------------------------- to store


def stored(column: pa.ChunkedArray | pa.Array, dialect: str) -> pa.ChunkedArray | pa.Array:
    """The column as booleans, integers, floats, texts or bytes, which the driver accepts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return stored(column.cast(kind.value_type), dialect)
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()) if dialect == "sqlite" else column
    if pa.types.is_nested(kind):
        return _json_texts(column)
    if _is_text(kind):
        texts = plain_strings(column)
        return texts if dialect == "sqlite" else pc.replace_substring(texts, "\x00", _REPLACEMENT)
    if _is_binary(kind):
        return column.cast(pa.binary()) if dialect == "sqlite" else _hex_texts(column)
    if pa.types.is_duration(kind):
        return column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)):
        return column
    return as_text(_nearest(column) if _has_years(kind) else column)


def as_text(column: pa.ChunkedArray | pa.Array) -> pa.StringArray:
    """Times, dates, decimals and other numbers as the texts of the table above.

    Different values have different texts, even values that no database can store.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        in_utc = column.cast(pa.timestamp("us", kind.tz and "UTC"), safe=False).cast(pa.timestamp("us"))
        return pc.replace_substring_regex(in_utc.cast(pa.string()), r"\.000000$", "")
    return column.cast(pa.string())


def plain_strings(column: pa.ChunkedArray | pa.Array) -> pa.StringArray:
    """Texts as valid UTF-8. Wrong bytes become U+FFFD."""
    texts = column.cast(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.cast(pa.binary()).to_pylist()
        return pa.array([None if value is None else value.decode(errors="replace") for value in raw], pa.string())
    return texts


def _has_years(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _nearest(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Times and dates. Those outside of the years 1 to 9999 become the nearest inside."""
    kind = column.type
    if not pa.types.is_timestamp(kind):
        return _between(column, datetime.date.min, datetime.date.max)
    in_utc = column.cast(pa.timestamp("us", kind.tz and "UTC"), safe=False)
    within = _between(in_utc.cast(pa.timestamp("us")), datetime.datetime.min, datetime.datetime.max)
    return within.cast(in_utc.type)


def _between(
    column: pa.ChunkedArray | pa.Array, first: datetime.date, last: datetime.date
) -> pa.ChunkedArray | pa.Array:
    low, high = pa.scalar(first, column.type), pa.scalar(last, column.type)
    return pc.max_element_wise(pc.min_element_wise(column, high, skip_nulls=False), low, skip_nulls=False)


def python_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """As ``to_pylist``. Times that Python cannot represent become the nearest that it can."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        numbers = column.cast(_with_numbers(column.type)).to_pylist()
        return [_with_times(value, column.type) for value in numbers]


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """The same type with numbers in place of times."""
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_numbers(kind.value_type)))
    return pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind


def _with_times(value: Any, kind: pa.DataType) -> Any:
    """The inverse of :func:`_with_numbers`."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(_with_times(key, kind.key_type), _with_times(item, kind.item_type)) for key, item in value]
    if pa.types.is_struct(kind):
        return {field.name: _with_times(value[field.name], field.type) for field in kind.fields}
    if pa.types.is_list(kind):
        return [_with_times(item, kind.value_type) for item in value]
    if _has_years(kind):
        return _nearest(pa.array([value], _with_numbers(kind)).cast(kind)).to_pylist()[0]
    return value


def _hex_texts(column: pa.ChunkedArray | pa.Array) -> pa.StringArray:
    return pa.array([None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()], pa.string())


def _json_texts(column: pa.ChunkedArray | pa.Array) -> pa.StringArray:
    kind = column.type
    values = python_values(column)
    return pa.array([None if value is None else json.dumps(_typed_json(value, kind)) for value in values], pa.string())


def _typed_json(value: object, kind: pa.DataType) -> object:
    """As :func:`jsonable`. The type tells maps from lists."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        assert isinstance(value, list)
        return {str(jsonable(key)): _typed_json(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        assert isinstance(value, dict)
        return {field.name: _typed_json(value[field.name], field.type) for field in kind.fields}
    if isinstance(value, list):
        return [_typed_json(item, kind.value_type) for item in value]
    return jsonable(value)


# ------------------------------------------------------------------------------------------------------- and back


def arrow_column(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Values that a driver returns, in the Arrow type that they were stored from."""
    if pa.types.is_dictionary(kind):
        return arrow_column(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values], kind)
    if pa.types.is_decimal(kind):
        numbers = [None if value is None else Decimal(str(value)) for value in values]
        return pa.array([None if n is None else _scaled(n, kind) for n in numbers], kind)
    if pa.types.is_nested(kind):
        parsed = [json.loads(value) if isinstance(value, str) else value for value in values]
        return pa.array([_from_json(value, kind) for value in parsed], kind)
    if pa.types.is_duration(kind):
        return pa.array(values, pa.int64()).cast(pa.duration("us")).cast(kind, safe=False)
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    if pa.types.is_temporal(kind) and any(isinstance(value, str) for value in values):
        if pa.types.is_time(kind):
            return pa.array(
                [None if value is None else datetime.time.fromisoformat(str(value)) for value in values], kind
            )
        texts = pa.array(values, pa.string())
        if not pa.types.is_timestamp(kind):
            return texts.cast(kind)
        times = texts.cast(pa.timestamp("us"))
        return times.cast(kind, safe=False) if kind.tz is None else pc.assume_timezone(times, "UTC").cast(kind)
    return pa.array(values, kind)


_MANY_DIGITS = Context(prec=80)


def _scaled(value: Decimal, kind: pa.DataType) -> Decimal:
    """Rounds to the scale of the column: SQLite returns 0.30000000000000004 for 0.3."""
    return value.quantize(Decimal(1).scaleb(-kind.scale), context=_MANY_DIGITS)


def _from_json(value: object, kind: pa.DataType) -> object:
    """The inverse of :func:`_typed_json`."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        assert isinstance(value, dict)
        return [(_leaf(key, kind.key_type), _from_json(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_struct(kind):
        assert isinstance(value, dict)
        return {field.name: _from_json(value.get(field.name), field.type) for field in kind.fields}
    if isinstance(value, list):
        return [_from_json(item, kind.value_type) for item in value]
    return _leaf(value, kind)


def _leaf(value: object, kind: pa.DataType) -> object:
    if pa.types.is_floating(kind):
        return float(str(value))
    if pa.types.is_integer(kind):
        return int(str(value))
    if _is_binary(kind) and isinstance(value, str):
        return bytes.fromhex(value.removeprefix("\\x"))
    if (pa.types.is_temporal(kind) and isinstance(value, str)) or pa.types.is_decimal(kind):
        return arrow_column([value], kind).to_pylist()[0]
    return value
