"""Encodes the keys and rows of a published view as Avro, in the format of Confluent's serializers.

A record begins with a zero byte and the id of its schema, which is registered for the subjects ``<topic>-key`` and
``<topic>-value``. The columns of the serving database decide the types::

    boolean, integers, reals     boolean, int or long, float or double
    NUMERIC(p, s)                bytes with the logical type decimal
    bytes                        bytes
    texts, times, JSON           string, as in JSON answers: SQLite stores times as texts
    anything else                a union of boolean, long, double and string

Every column may be null. A column whose name is no Avro name gets _ in place of the characters that Avro does not
allow.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

from headrace.pipeline.changes.outbox import Followed
from headrace.pipeline.changes.published_topic import PublishRefused
from headrace.pipeline.changes.row_values import Row, ViewColumn, row_text
from headrace.pipeline.decoding.registry import IncompatibleSchema, SchemaRegistry
from headrace.pipeline.project.definition import Publish

_MANY_DIGITS = Context(prec=80)
_ANYTHING: list[object] = ["null", "boolean", "long", "double", "string"]
_TYPES: dict[str, object] = {
    "boolean": "boolean",
    "smallint": "int",
    "integer": "int",
    "bigint": "long",
    "real": "float",
    "double": "double",
    "double precision": "double",
    "float": "double",
    "text": "string",
    "date": "string",
    "bytea": "bytes",
    "blob": "bytes",
    "json": "string",
    "jsonb": "string",
}
_DECIMAL = re.compile(r"numeric\((\d+), ?(\d+)\)", re.IGNORECASE)


def avro_type(column: ViewColumn) -> object:
    kind = column.type.lower()
    if kind.startswith(("timestamp", "time ")) or kind == "time":
        return ["null", "string"]
    if found := _DECIMAL.fullmatch(column.type):
        return ["null", {"type": "bytes", "logicalType": "decimal", "precision": int(found[1]), "scale": int(found[2])}]
    return ["null", _TYPES[kind]] if kind in _TYPES else _ANYTHING


def avro_schema(name: str, columns: Sequence[ViewColumn]) -> dict[str, object]:
    """
    :raises PublishRefused: if two columns have the same Avro name.
    """
    names = [avro_name(column.name) for column in columns]
    repeated = next((each for each in names if names.count(each) > 1), None)
    if repeated is not None:
        raise PublishRefused(f"two columns of {name} are {repeated!r} in Avro: rename one with AS in the query")
    fields = [
        {"name": field, "type": avro_type(column), "default": None}
        for field, column in zip(names, columns, strict=True)
    ]
    return {"type": "record", "name": name, "namespace": "headrace", "fields": fields}


def avro_name(name: str) -> str:
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{made}" if made[:1].isdigit() else made


def _converter(column: ViewColumn) -> Callable[[Any], object]:
    """From a JSON value of a row to what fastavro writes."""
    if found := _DECIMAL.fullmatch(column.type):
        one = Decimal(1).scaleb(-int(found[2]))
        return lambda value: Decimal(str(value)).quantize(one, context=_MANY_DIGITS)
    kind = _TYPES.get(column.type.lower())
    if kind == "bytes":
        return lambda value: bytes.fromhex(value.removeprefix("\\x"))
    if kind in ("float", "double"):
        return float
    if column.is_json or column.type.lower() not in _TYPES:
        return lambda value: row_text(value) if isinstance(value, (dict, list)) or column.is_json else value
    return lambda value: value


class AvroFormat:
    """:param write: writes an object by a schema that fastavro has parsed."""

    def __init__(self, registry: SchemaRegistry, topic: str, state: Followed) -> None:
        assert state.key is not None, "a published view has a key"
        self._columns = {column.name: (avro_name(column.name), _converter(column)) for column in state.columns}
        keyed = [column for column in state.columns if column.name in state.key]
        self._key = self._registered(registry, f"{topic}-key", avro_schema(f"{state.view}_key", keyed))
        self._value = self._registered(registry, f"{topic}-value", avro_schema(f"{state.view}_value", state.columns))

    @classmethod
    def of(cls, publish: Publish, state: Followed) -> AvroFormat:
        """
        :raises PublishRefused: if the registry refuses a schema.
        :raises RegistryUnavailable: if the registry does not answer.
        """
        return cls(SchemaRegistry(publish.registry, publish.registry_options), publish.topic, state)

    def _registered(self, registry: SchemaRegistry, subject: str, schema: dict[str, object]) -> tuple[bytes, Any]:
        from fastavro import parse_schema

        try:
            number = registry.register(subject, json.dumps(schema))
        except IncompatibleSchema as error:
            raise PublishRefused(
                f"{error}; allow the change for the subject {subject}, or publish to another topic"
            ) from None
        return b"\0" + number.to_bytes(4, "big"), parse_schema(schema)

    def key(self, key: Row) -> bytes:
        return self._written(self._key, key)

    def value(self, row: Row) -> bytes:
        return self._written(self._value, row)

    def _written(self, schema: tuple[bytes, Any], row: Row) -> bytes:
        from fastavro import schemaless_writer

        header, parsed = schema
        values = {}
        for name, value in row.items():
            avro, convert = self._columns[name]
            values[avro] = None if value is None else convert(value)
        out = io.BytesIO(header)
        out.seek(len(header))
        schemaless_writer(out, parsed, values)
        return out.getvalue()
