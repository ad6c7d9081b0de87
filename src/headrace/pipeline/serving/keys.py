"""Computes the ``_key`` of a row: the values of its key columns as one text, which is the same in every process.

It is a JSON array, ``["home",7,null]``. NULL equals NULL; in a primary key both databases would treat two NULLs as
different. Texts have only the escapes that JSON needs; numbers and booleans are JSON's; times are UTC texts; bytes are
hex; -0.0 is 0.0, and NaN equals NaN, as in Spark's GROUP BY. A key longer than ``MAX_KEY_BYTES`` is replaced by its
SHA-256, because PostgreSQL's index refuses entries of more than 2.7 kB.

Arrow's functions convert whole columns at once. Only texts with quotes, backslashes or control characters, and rare
types, are converted in Python, value by value. A million keys of one text column take a tenth of a second.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.serving.columns import as_text, plain_strings, python_values
from headrace.pipeline.serving.queries.formats import jsonable

MAX_KEY_BYTES = 1000
_NEEDS_ESCAPES = r'["\\\x00-\x1f]'


def canonical_keys(table: pa.Table, key_columns: Sequence[str]) -> pa.StringArray:
    """One key per row. Without key columns (one total over everything) all rows have the same key."""
    if not key_columns:
        return pa.array(["[]"] * table.num_rows, pa.string())
    parts = [_json_texts(_whole(table.column(name))) for name in key_columns]
    inner = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")
    return _shortened(pc.binary_join_element_wise("[", inner, "]", ""))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _json_texts(column: pa.Array) -> pa.StringArray:
    kind = column.type
    if pa.types.is_integer(kind):
        return pc.fill_null(pc.cast(column, pa.string()), "null")
    if pa.types.is_boolean(kind):
        return pc.fill_null(pc.cast(column, pa.string()), "null")
    if pa.types.is_decimal(kind):
        return pc.fill_null(pc.cast(column, pa.string()), "null")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _quoted(as_text(column))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return _quoted(plain_strings(column))
    return pa.array([_dumps(_canonical(value)) for value in python_values(column)], pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPES), False)
    if pc.any(special).as_py():
        escaped = pa.array([_dumps(text) for text in texts.filter(special).to_pylist()], pa.string())
        quoted = pc.replace_with_mask(quoted, special, escaped)
    return pc.fill_null(quoted, "null")


def _canonical(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0  # -0.0 + 0.0 is 0.0
    return jsonable(value)


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _shortened(keys: pa.StringArray) -> pa.StringArray:
    long = pc.greater(pc.binary_length(keys), MAX_KEY_BYTES)
    if not pc.any(long).as_py():
        return keys
    hashes = [f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" for key in keys.filter(long).to_pylist()]
    return pc.replace_with_mask(keys, long, pa.array(hashes, pa.string()))
