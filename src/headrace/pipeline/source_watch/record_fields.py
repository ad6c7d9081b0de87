"""Finds which fields a record has, and which of them the schema of its source names.

===============  =======================================================================================================
format           the fields of a record
===============  =======================================================================================================
json             those of the object; of ``after``, if the source reads changes
avro, registry   those of the schema that the record was written with: exact, and the record itself is not read
protobuf         the set fields, among the fields that can tell (``optional``, messages); numbers that the descriptors
                 do not have are new; changes are not looked at
others           unknown: a record that differs from its schema does not decode (CSV, Avro without a registry), or
                 there is no schema (raw), or a function decides (python)
===============  =======================================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from headrace.pipeline.decoding.avro_columns import UnsuitableAvro, parsed_avro
from headrace.pipeline.decoding.protobuf_columns import message_of, unframed
from headrace.pipeline.decoding.registry import HEADER_BYTES, MAX_SCHEMAS, SchemaRegistry, UnknownSchema, schema_id_of
from headrace.pipeline.project.decode import Decode
from headrace.pipeline.source_watch.columns import Columns, avro_fields, json_columns
from headrace.pipeline.source_watch.field_counts import Fields

#: None for a record that does not decode: it is a dead letter, and says nothing about its writer's schema.
ReadFields = Callable[[bytes], "Fields | None"]
#: The field of Debezium's envelope that has the row.
_ROW = "after"
_SETS = ("c", "r", "u")


def fields_reader(decode: Decode) -> ReadFields | None:
    """None if the fields of records are not known."""
    if decode.format == "json":
        columns = json_columns(decode)
        return _json_reader(decode, columns) if columns else None
    if decode.format == "avro" and decode.registry:
        return _avro_reader(decode)
    return _protobuf_reader(decode) if decode.format == "protobuf" and not decode.envelope else None


def is_exact(decode: Decode) -> bool:
    """Whether the schema of each record is known."""
    return decode.format == "avro"


# ---------------------------------------------------------------------------------------------------------------- JSON


def _json_reader(decode: Decode, columns: Columns) -> ReadFields:
    skipped = HEADER_BYTES if decode.framing == "confluent" else 0

    def read(value: bytes) -> Fields | None:
        try:
            document = json.loads(value[skipped:])
        except (ValueError, RecursionError):
            return None
        row = _changed_row(document) if decode.envelope else document
        return _compared(columns, row) if isinstance(row, dict) else None

    return read


def _changed_row(document: object) -> object:
    """The row of a change that sets one."""
    if isinstance(document, dict) and isinstance(document.get("payload"), dict):
        document = document["payload"]
    return document.get(_ROW) if isinstance(document, dict) and document.get("op") in _SETS else None


def _compared(columns: Columns, row: dict[str, Any]) -> Fields:
    has_value: dict[str, bool] = {}
    named: set[str] = set()
    new: set[str] = set()
    _compare(columns, row, "", has_value, named, new)
    return Fields(has_value, frozenset(named), frozenset(new))


def _compare(
    columns: Columns, row: dict[str, Any], path: str, has_value: dict[str, bool], named: set[str], new: set[str]
) -> None:
    for name, column in columns.items():
        value = row.get(name)
        if column.may_be_null:
            has_value[path + name] = value is not None
            if name in row:
                named.add(path + name)
        if column.inside is not None and isinstance(value, dict):
            _compare(column.inside, value, f"{path}{name}.", has_value, named, new)
    new.update(path + name for name in row if name not in columns)


# ---------------------------------------------------------------------------------------------------------------- Avro


def _avro_reader(decode: Decode) -> ReadFields:
    registry = SchemaRegistry(decode.registry, decode.registry_options)
    columns = _row_fields(decode, avro_fields(parsed_avro(decode.schema)))
    known: dict[int, Fields | None] = {}

    def read(value: bytes) -> Fields | None:
        try:
            schema_id = schema_id_of(value)
        except ValueError:
            return None
        if schema_id not in known:
            if len(known) >= MAX_SCHEMAS:
                known.clear()
            known[schema_id] = _of_schema(decode, registry, schema_id, columns)
        return known[schema_id]

    return read


def _row_fields(decode: Decode, fields: Columns) -> Columns:
    """The fields of the row, if these are the fields of an envelope."""
    return (fields[_ROW].inside or {} if _ROW in fields else {}) if decode.envelope else fields


def _of_schema(decode: Decode, registry: SchemaRegistry, schema_id: int, columns: Columns) -> Fields | None:
    try:
        found = registry.schema(schema_id)
        if found.kind != "AVRO":
            return None
        written = _row_fields(decode, avro_fields(parsed_avro(found.text, found.references)))
    except (UnknownSchema, UnsuitableAvro):
        return None
    has_value = dict(_in_both(columns, written, ""))
    names = frozenset(name for name, is_there in has_value.items() if is_there)
    return Fields(has_value, names, frozenset(_only_written(columns, written, "")))


def _in_both(columns: Columns, written: Columns, path: str) -> Iterator[tuple[str, bool]]:
    for name, column in columns.items():
        its_name = next((each for each in (name, *column.aliases) if each in written), None)
        if column.may_be_null:
            yield path + name, its_name is not None
        if its_name is not None and column.inside is not None:
            inside = written[its_name].inside
            if inside is not None:
                yield from _in_both(column.inside, inside, f"{path}{name}.")


def _only_written(columns: Columns, written: Columns, path: str) -> Iterator[str]:
    by_name = {each: column for name, column in columns.items() for each in (name, *column.aliases)}
    for name, field in written.items():
        if name not in by_name:
            yield path + name
        elif (inside := by_name[name].inside) is not None and field.inside is not None:
            yield from _only_written(inside, field.inside, f"{path}{name}.")


# ------------------------------------------------------------------------------------------------------------ Protobuf


def _protobuf_reader(decode: Decode) -> ReadFields:
    from google.protobuf import message_factory  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    message = message_of(decode)
    parse = message_factory.GetMessageClass(message).FromString
    can_tell = [field.name for field in message.fields if field.has_presence]

    def read(value: bytes) -> Fields | None:
        try:
            made = parse(unframed(value, message, None) if decode.framing == "confluent" else value)
        except (DecodeError, ValueError):
            return None
        has_value = {name: bool(made.HasField(name)) for name in can_tell}
        named = frozenset(name for name, is_set in has_value.items() if is_set)
        return Fields(has_value, named, frozenset(f"number {each.field_number}" for each in UnknownFieldSet(made)))

    return read
