"""Converts columns of a view to types that a Delta table can have.

==========================================  ======================================================
Spark's type, as Arrow                      Delta
==========================================  ======================================================
boolean, byte to long, float, double        the same
decimal(p, s), string, binary, date         the same
timestamp (with time zone)                  timestamp
timestamp without time zone                 timestamp_ntz, a table feature: old readers refuse it
struct, array, map                          the same, if all their parts have a type of this table
interval (a duration)                       long: microseconds, as in the serving database
time                                        string: 08:30:00.000000
nothing but NULL                            string
any other struct, array or map              string: the JSON text, as in answers
==========================================  ======================================================

Every column, field and element may be null: the serving database has no NOT NULL, and SQLite stores NaN as NULL.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

_SAME = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_date32,
)


def delta_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, delta_type(field.type)) for field in schema])


def delta_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column with values of this type."""
    if pa.types.is_duration(kind):
        return pa.int64()
    return _kept(kind) or pa.string()


def _kept(kind: pa.DataType) -> pa.DataType | None:
    """The type as Delta has it; None if Delta has none for the same values."""
    if any(is_it(kind) for is_it in _SAME):
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        element = _kept(kind.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_map(kind):
        key, item = _kept(kind.key_type), _kept(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_struct(kind):
        parts = [(field.name, _kept(field.type)) for field in kind.fields]
        return None if any(part is None for _, part in parts) else pa.struct(parts)
    return None
