"""Converts values of SQLite to Arrow columns. SQLite knows the type of a value, and not of a column.

A block of values gets the narrowest type that holds all of them. The blocks of an answer may differ, so
:func:`common_type` says which type holds both. A column without values has the declared type of the column with this
name in the views that the statement reads, if there is one.

==========================  =====================================
Values                      Arrow
==========================  =====================================
true and false              bool
integers                    int64; double in a NUMERIC or REAL column
numbers                     double; an integer beyond 2^53 becomes the nearest one
texts                       string
blobs                       binary
arrays and objects (JSON)   string: the JSON text
several of these            string: as in CSV
none                        the declared type, else null
==========================  =====================================
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.serving.queries.answer_limits import Row
from headrace.pipeline.serving.queries.formats import plain_cell

_OF_KINDS: dict[frozenset[type], pa.DataType] = {
    frozenset({bool}): pa.bool_(),
    frozenset({int}): pa.int64(),
    frozenset({float}): pa.float64(),
    frozenset({int, float}): pa.float64(),
    frozenset({str}): pa.string(),
    frozenset({bytes}): pa.binary(),
}
#: By the first word of a declared type.
_DECLARED: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "SMALLINT": pa.int64(),
    "INTEGER": pa.int64(),
    "BIGINT": pa.int64(),
    "REAL": pa.float64(),
    "FLOAT": pa.float64(),
    "DOUBLE": pa.float64(),
    "NUMERIC": pa.float64(),
    "TEXT": pa.string(),
    "JSON": pa.string(),
    "BLOB": pa.binary(),
}


@dataclass(frozen=True)
class ArrowRows:
    """The rows of an answer.

    :param types: a type for each column, in case that it has no value.
    :param batches: rows in batches of bounded size. A column without a value in a batch may have the type null.
    """

    names: list[str]
    types: list[pa.DataType]
    batches: Generator[pa.RecordBatch, None, None]


def declared_type(text: str) -> pa.DataType:
    """The Arrow type of a declared type of SQLite; null if it is not known."""
    words = text.upper().replace("(", " ").split()
    return _DECLARED.get(words[0], pa.null()) if words else pa.null()


def batch_of(names: list[str], rows: Sequence[Row], declared: Sequence[pa.DataType]) -> pa.RecordBatch:
    """A block of rows as Arrow."""
    columns = zip(*rows, strict=True)
    arrays = [_array(values, kind) for values, kind in zip(columns, declared, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


def _array(values: Sequence[object], declared: pa.DataType) -> pa.Array:
    kinds = frozenset(map(type, values)) - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    kind = _OF_KINDS.get(kinds)
    if kind is not None and pa.types.is_integer(kind) and pa.types.is_floating(declared):
        kind = pa.float64()
    if kind is None:
        return pa.array([_text(value) for value in values], pa.string())
    return pa.array(values, kind)


def _text(value: object) -> str | None:
    return None if value is None else str(plain_cell(value))


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of a column that has values of both types."""
    if one == other:
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return pa.string()


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in a type of :func:`common_type`."""
    if column.type == kind:
        return column
    if pa.types.is_string(kind) and not pa.types.is_null(column.type):
        return pa.array([_text(value) for value in column.to_pylist()], kind)
    return pc.cast(column, kind, safe=False)
