"""Finds the column type of JSON values, and the type that fits two of them.

A type is one of these::

    None                        only null so far
    "BIGINT", "STRING", ...     a simple type of Spark
    Array(element)
    Struct({name: Field})

Two types that no number, date or structure has in common become STRING: Spark's JSON reader gives the text of any value
for a STRING column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PLAIN_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_LONG = 1 << 63
_LARGEST_DECIMAL = 10**38
#: An object with more fields than this has names that are data. No schema lists them.
_MAX_FIELDS = 200
#: Wider types in the order in which one contains those before it.
_NUMBERS = ("BIGINT", "DECIMAL(38,0)", "DOUBLE")
_TIMES = ("DATE", "TIMESTAMP")
#: With fewer records than this, a field that all records have may still be missing in others.
_ENOUGH_RECORDS = 20


@dataclass
class Array:
    element: str | Array | Struct | None = None


@dataclass
class Field:
    """:ivar count: in how many objects the field was there and not null."""

    type: str | Array | Struct | None = None
    count: int = 0


@dataclass
class Struct:
    """:ivar count: how many objects were seen."""

    fields: dict[str, Field] = field(default_factory=dict)
    count: int = 0


def type_of(value: object) -> str | Array | Struct | None:
    """The type of a value that ``json.loads`` returned."""
    if isinstance(value, dict):
        fields = {name: Field(type_of(each), each is not None) for name, each in value.items()}
        return Struct(fields, 1)
    if isinstance(value, list):
        return Array(merged(type_of(each) for each in value))
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return _type_of_whole(value)
    if isinstance(value, str):
        return _type_of_text(value)
    return None if value is None else "DOUBLE"


def _type_of_whole(value: int) -> str:
    if -_LONG <= value < _LONG:
        return "BIGINT"
    return "DECIMAL(38,0)" if abs(value) < _LARGEST_DECIMAL else "STRING"


def _type_of_text(text: str) -> str:
    """Text that only looks like a time, such as 2026-02-30, is a STRING: Spark cannot read it as a time."""
    try:
        if _TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(text)
            return "TIMESTAMP"
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "DATE"
    except ValueError:
        pass
    return "STRING"


def type_of_word(text: str) -> str:
    """The type of a text without quotes, such as a column of CSV."""
    if re.fullmatch(r"-?\d{1,18}", text):
        return "BIGINT"
    if re.fullmatch(r"-?\d+\.\d+([eE][+-]?\d+)?", text):
        return "DOUBLE"
    return "BOOLEAN" if text in ("true", "false") else _type_of_text(text)


def merged(types: Iterable[str | Array | Struct | None]) -> str | Array | Struct | None:
    made: str | Array | Struct | None = None
    for each in types:
        made = merge(made, each)
    return made


def merge(one: str | Array | Struct | None, other: str | Array | Struct | None) -> str | Array | Struct | None:
    """The narrowest type that fits the values of both."""
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, Struct) and isinstance(other, Struct):
        fields = {
            name: Field(
                merge(a.type if a else None, b.type if b else None), (a.count if a else 0) + (b.count if b else 0)
            )
            for name in (*one.fields, *(name for name in other.fields if name not in one.fields))
            for a, b in [(one.fields.get(name), other.fields.get(name))]
        }
        return Struct(fields, one.count + other.count)
    if isinstance(one, Array) and isinstance(other, Array):
        return Array(merge(one.element, other.element))
    if one == other:
        return one
    for wider in (_NUMBERS, _TIMES):
        if isinstance(one, str) and isinstance(other, str) and one in wider and other in wider:
            return max(one, other, key=wider.index)
    return "STRING"


def columns_of(struct: Struct) -> tuple[str, list[str]]:
    """The columns as Spark writes them, and notes for the user about columns that need a look."""
    notes: list[str] = []
    columns: list[str] = []
    seen: set[str] = set()
    for name, each in struct.fields.items():
        if why := _why_left_out(name, seen):
            notes.append(f"the field {name or repr(name)} is left out: {why}")
            continue
        seen.add(name.lower())
        is_always_there = each.count == struct.count >= _ENOUGH_RECORDS
        columns.append(f"{quoted(name)} {ddl(each.type)}{' NOT NULL' if is_always_there else ''}")
        notes += _notes(name, each, struct.count)
    return ", ".join(columns), notes


def _why_left_out(name: str, seen: set[str]) -> str:
    if not name:
        return "a column needs a name"
    if name.lower() in seen:
        return "another column has this name in other case"
    return "names with _ are taken" if name.startswith("_") else ""


def _notes(name: str, each: Field, total: int) -> Iterator[str]:
    if each.type is None:
        yield f"the field {name} is null in all records: STRING is a guess"
    elif each.count < total:
        yield f"the field {name} is missing or null in {total - each.count} of {total} records"


def ddl(kind: str | Array | Struct | None) -> str:
    """A type as Spark writes it."""
    if isinstance(kind, Array):
        return f"ARRAY<{ddl(kind.element)}>"
    if isinstance(kind, Struct):
        if not 0 < len(kind.fields) <= _MAX_FIELDS:
            return "VARIANT"
        lowered = {name.lower() for name in kind.fields}
        if len(lowered) < len(kind.fields) or "" in lowered:  # a struct cannot have both, nor a field without a name
            return "VARIANT"
        return f"STRUCT<{', '.join(f'{quoted(name)}: {ddl(each.type)}' for name, each in kind.fields.items())}>"
    return kind or "STRING"


def quoted(name: str) -> str:
    """The name of a column, in backticks if it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def split_columns(schema: str) -> list[str]:
    """The columns of a schema, without cutting names, types and comments that contain commas."""
    columns, depth, start, quote = [], 0, 0, ""
    for at, letter in enumerate(schema):
        if letter in ("`", "'", '"') and quote in ("", letter):
            quote = "" if quote else letter
        elif not quote:
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                columns.append(schema[start:at].strip())
                start = at + 1
    return [*columns, schema[start:].strip()]


def column_name(column: str) -> str:
    """The name of a column such as ``user STRING``."""
    if column.startswith("`"):
        return column[1 : column.index("`", 1)]
    return column.split()[0].rstrip(":")
