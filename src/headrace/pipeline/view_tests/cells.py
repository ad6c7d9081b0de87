"""Values of rows in one form, so that expected rows, a view's rows and Spark's batch answer can be compared.

====================  =====================================  ==================================================
Arrow                 a cell (JSON)                          what a test may write
====================  =====================================  ==================================================
bool                  true, false                            true, false
int8 .. int64         a number                               a whole number
float, double         a number; NaN is NULL (in SQLite)      a number
decimal               a text, ``12.50``                      a number or a text
string                a text                                 a text
date                  ``2026-11-16``                         a date or a text
timestamp             ``2026-11-16T08:30:00[.123456]``       a time or a text; in UTC if it names no time zone
binary                hexadecimal digits                     the same
list                  a list                                 a list
struct, map           an object                              a table
====================  =====================================  ==================================================

SQLite keeps 15 digits of a decimal. So a decimal with more digits is rounded to 15 in all three kinds of rows. Floating
point sums depend on the order of their terms. So two such numbers are equal if they differ by less than one part in a
thousand million (``FLOAT``: in a million).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.serving.columns import arrow_column, python_values, stored

Cell = Any
Row = tuple[Cell, ...]
_SQLITE_DIGITS, _MANY_DIGITS = Context(prec=15), Context(prec=80)
_DOUBLE_TOLERANCE, _FLOAT_TOLERANCE = 1e-9, 1e-6


class UnfitValue(ValueError):
    """A value of a test that a column cannot have; the message says what to write."""


# ------------------------------------------------------------------------------------------------------ what was found


def rows_of(table: pa.Table) -> list[Row]:
    """Rows of an answer, as a reader of SQLite would get them."""
    columns = [_cells(stored(column, "sqlite").to_pylist(), column.type) for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def rows_of_database(rows: Sequence[Sequence[object]], schema: pa.Schema) -> list[Row]:
    """Rows that SQLite returned."""
    columns = [_cells([row[at] for row in rows], schema.types[at]) for at in range(len(schema))]
    return list(zip(*columns, strict=True)) if columns else []


def _cells(values: Sequence[object], kind: pa.DataType) -> list[Cell]:
    return [_cell(value, kind) for value in python_values(arrow_column(values, kind))]


def _cell(value: Any, kind: pa.DataType) -> Cell:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(_cell(key, kind.key_type)): _cell(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _cell(value[field.name], field.type) for field in kind.fields}
    if isinstance(value, list):
        return [_cell(item, kind.value_type) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, Decimal):
        return _decimal(value, kind)
    if isinstance(value, datetime.datetime):
        return _time(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    return value.hex() if isinstance(value, bytes) else value


def _decimal(value: Decimal, kind: pa.DataType) -> str:
    short = _SQLITE_DIGITS.create_decimal(value)
    return f"{short.quantize(Decimal(1).scaleb(-kind.scale), context=_MANY_DIGITS):f}"


def _time(value: datetime.datetime) -> str:
    in_utc = value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    return in_utc.isoformat()


# ---------------------------------------------------------------------------------------------------- what is expected


def expected_cell(value: Any, kind: pa.DataType) -> Cell:
    """The cell of a value in a test.

    :raises UnfitValue: if a column of this type cannot have the value.
    """
    if value is None:
        return None
    if pa.types.is_dictionary(kind):
        return expected_cell(value, kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [expected_cell(item, kind.value_type) for item in _of(list, value, "a list")]
    if pa.types.is_map(kind):
        given = _of(Mapping, value, "a table")
        return {str(key): expected_cell(item, kind.item_type) for key, item in given.items()}
    if pa.types.is_struct(kind):
        given = _of(Mapping, value, "a table")
        names = {field.name for field in kind.fields}
        if unknown := [name for name in given if name not in names]:
            raise UnfitValue(f"the struct has no field {unknown[0]}")
        return {field.name: expected_cell(given.get(field.name), field.type) for field in kind.fields}
    return _expected_simple(value, kind)


def _expected_simple(value: Any, kind: pa.DataType) -> Cell:
    if pa.types.is_boolean(kind):
        return _of(bool, value, "true or false")
    if pa.types.is_integer(kind) or pa.types.is_duration(kind):
        return _whole(value)
    if pa.types.is_floating(kind):
        number = float(_number(value))
        return None if math.isnan(number) else number
    if pa.types.is_decimal(kind):
        try:
            return _decimal(_number(value), kind)
        except InvalidOperation:
            raise UnfitValue(f"write a number that {kind} can hold") from None
    if pa.types.is_timestamp(kind):
        return _time(_parsed(datetime.datetime, value, "a time such as 2026-11-16T08:30:00Z"))
    if pa.types.is_date(kind):
        return _parsed(datetime.date, value, "a date such as 2026-11-16").isoformat()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return bytes.fromhex(_of(str, value, "hexadecimal digits in quotes")).hex()
        except ValueError:
            raise UnfitValue("write hexadecimal digits in quotes") from None
    return _of(str, value, "a text in quotes")


def _of(kind: Any, value: Any, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise UnfitValue(f"write {wanted}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnfitValue("write a whole number")
    return value


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise UnfitValue("write a number")
    try:
        return Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise UnfitValue("write a number") from None


def _parsed(kind: type[datetime.date], value: Any, wanted: str) -> Any:
    if kind is datetime.date and isinstance(value, datetime.datetime):
        raise UnfitValue(f"write {wanted}")
    if isinstance(value, kind):
        return value
    try:
        return kind.fromisoformat(_of(str, value, wanted))
    except ValueError:
        raise UnfitValue(f"write {wanted}") from None


# ------------------------------------------------------------------------------------------------------------ compared


def is_equal(one: Cell, other: Cell, kind: pa.DataType) -> bool:
    if one is None or other is None:
        return one is other
    if pa.types.is_floating(kind):
        tolerance = _DOUBLE_TOLERANCE if pa.types.is_float64(kind) else _FLOAT_TOLERANCE
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=0.0)
    if pa.types.is_struct(kind):
        return all(is_equal(one[field.name], other[field.name], field.type) for field in kind.fields)
    if pa.types.is_map(kind):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key], kind.item_type) for key in one)
    if isinstance(one, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(is_equal(*pair, kind.value_type) for pair in pairs)
    return bool(one == other)


def has_tolerance(kind: pa.DataType) -> bool:
    """Whether equal cells of this type may differ."""
    return bool(pa.types.is_floating(kind) or pa.types.is_nested(kind))
