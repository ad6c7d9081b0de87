"""Encodes rows between operators so that a database returns every value unchanged.

The serving database shows values to people, and changes some of them for that (``serving.columns``). State must come
back exactly: an operator is computed over it again, and has to give the row that it gave before. So a column of state
is stored as one of three kinds::

    integer   booleans, integers; floats as their bits; dates, times and intervals as their number of units
    bytes     texts (a text may have any bytes in Spark) and binaries
    text      decimals; arrays, structs and maps as JSON with the same encoding inside; variants are structs of bytes

A row has an identity: a hash of 128 bits over its encoded values. Two rows are equal if their hashes are.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.serving.errors import UnsuitableSchema

#: Of a column of state: how the database stores it.
INTEGER, BYTES, TEXT = "integer", "bytes", "text"
#: Marshal's format that writes equal values as equal bytes.
_FORMAT = 2


class RowCodec:
    """Encodes and decodes the rows of one Arrow schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.storage = tuple(storage_of(field) for field in schema)

    def encode(self, rows: pa.Table) -> list[list[Any]]:
        """One list of stored values per column."""
        return [_encoded(rows.column(at), field.type) for at, field in enumerate(self.schema)]

    def decode(self, columns: Sequence[Sequence[Any]]) -> pa.Table:
        """The inverse of ``encode``."""
        arrays = [_decoded(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.table(arrays, schema=self.schema)


def identities(columns: Sequence[Sequence[Any]], count: int) -> list[bytes]:
    """The identity of each row, from its encoded columns."""
    rows = zip(*columns, strict=True) if columns else ((),) * count
    return [blake2b(marshal.dumps(row, _FORMAT), digest_size=16).digest() for row in rows]


def storage_of(field: pa.Field) -> str:
    kind = field.type
    if pa.types.is_nested(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return TEXT
    if _is_bytes(kind):
        return BYTES
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return INTEGER
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return INTEGER
    raise UnsuitableSchema(f"column {field.name!r} has the type {kind}, which cannot be kept as state")


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without times, floats and texts: its values become Python values without loss."""
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind.fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind):
        return pa.int64()
    return pa.binary() if _is_bytes(kind) else kind


def _encoded(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> list[Any]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], kind)
    if pa.types.is_floating(kind):
        bits = pa.int64() if pa.types.is_float64(kind) else pa.int32()
        return _list(_canonical_nan(array).view(bits))
    if pa.types.is_boolean(kind):
        return _list(array.cast(pa.int8()))
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return _list(array.cast(pa.string()))
    if pa.types.is_nested(kind):
        values = _list(array.cast(_plain(kind)))
        return [None if value is None else json.dumps(_to_json(value, kind)) for value in values]
    return _list(array.cast(_plain(kind)))


def _list(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _canonical_nan(array: pa.Array) -> pa.Array:
    is_nan = pc.fill_null(pc.is_nan(array), False)
    return pc.if_else(is_nan, pa.scalar(float("nan"), array.type), array) if pc.any(is_nan).as_py() else array


def _decoded(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        bits = pa.int64() if pa.types.is_float64(kind) else pa.int32()
        return pa.array(values, bits).view(kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return pa.array(values, pa.string()).cast(kind) if pa.types.is_decimal(kind) else pa.nulls(len(values))
    if pa.types.is_nested(kind):
        parsed = [None if value is None else _from_json(json.loads(value), kind) for value in values]
        return pa.array(parsed, _plain(kind)).cast(kind, safe=False)  # a text may have any bytes
    return pa.array(values, _plain(kind)).cast(kind, safe=False)  # a text may have any bytes


def _to_json(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [[_to_json(key, kind.key_type), _to_json(item, kind.item_type)] for key, item in value]
    if pa.types.is_struct(kind):
        return [_to_json(value[field.name], field.type) for field in kind.fields]
    if pa.types.is_list(kind):
        return [_to_json(item, kind.value_type) for item in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value) if pa.types.is_decimal(kind) else value


def _from_json(value: Any, kind: pa.DataType) -> Any:
    from decimal import Decimal

    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(_from_json(key, kind.key_type), _from_json(item, kind.item_type)) for key, item in value]
    if pa.types.is_struct(kind):
        pairs = zip(kind.fields, value, strict=True)
        return {field.name: _from_json(item, field.type) for field, item in pairs}
    if pa.types.is_list(kind):
        return [_from_json(item, kind.value_type) for item in value]
    if _is_bytes(kind):
        return value.encode("latin-1")
    return Decimal(value) if pa.types.is_decimal(kind) else value
