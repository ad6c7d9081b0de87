"""The columns of a schema as a tree of names, without Spark: what a record may have, and what it must have.

::

    id BIGINT NOT NULL, user STRUCT<name: STRING>     {"id": NOT NULL, "user": {"name": may be NULL}}

Only structs have columns inside. The names inside of arrays and maps are not watched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.pipeline.inference.types import column_name, split_columns
from headrace.pipeline.project.decode import Decode

_NOT_NULL = re.compile(r"\bNOT\s+NULL\b[^>]*\Z", re.IGNORECASE)
_STRUCT = re.compile(r"STRUCT\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_COLUMN = re.compile(r"(`(?:[^`]|``)*`|[^\s:`]+)\s*:?\s*(.*)", re.DOTALL)
_VARIANT = re.compile(r"VARIANT\b", re.IGNORECASE)
#: A type that contains itself has no end.
_MAX_DEPTH = 20


class Column(NamedTuple):
    """
    :ivar may_be_null: False if a record that lacks the column is a dead letter.
    :ivar inside: the columns of a struct; None for any other type.
    :ivar aliases: further names of the field in records (Avro).
    """

    may_be_null: bool = True
    inside: Mapping[str, Column] | None = None
    aliases: tuple[str, ...] = ()


Columns = Mapping[str, Column]


def json_columns(decode: Decode) -> Columns:
    """The columns of a JSON source; none if its only column is the whole document."""
    columns = _of_ddl(decode.schema, 0)
    texts = split_columns(decode.schema)
    is_document = len(texts) == 1 and _VARIANT.match(_type_text(texts[0])) is not None
    return {} if is_document else columns


def _of_ddl(schema: str, depth: int) -> Columns:
    made: dict[str, Column] = {}
    for text in split_columns(schema):
        if text and depth < _MAX_DEPTH:
            kind = _type_text(text)
            found = _STRUCT.match(kind)
            inside = _of_ddl(found[1], depth + 1) if found else None
            made[column_name(text)] = Column(_NOT_NULL.search(kind) is None, inside)
    return made


def _type_text(column: str) -> str:
    found = _COLUMN.match(column)
    return found[2] if found else ""


def avro_fields(parsed: Any) -> Columns:
    """The fields of an Avro record that ``fastavro.parse_schema`` returned."""
    return _Records().of(parsed, 0) or {}


class _Records:
    """Keeps named records, because later fields may refer to them."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def of(self, avro: Any, depth: int) -> Columns | None:
        if isinstance(avro, list):
            others = [each for each in avro if each != "null"]
            return self.of(others[0], depth) if len(others) == 1 else None
        if isinstance(avro, str):
            avro = self._named.get(avro)
        if not isinstance(avro, Mapping) or avro.get("type") != "record" or depth >= _MAX_DEPTH:
            return None
        self._named[str(avro["name"])] = avro
        return {
            str(each["name"]): Column(_may_be_null(each["type"]), self.of(each["type"], depth + 1), _aliases(each))
            for each in avro["fields"]
        }


def _may_be_null(avro: object) -> bool:
    return isinstance(avro, list) and "null" in avro


def _aliases(field: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(each) for each in field.get("aliases", ()))
