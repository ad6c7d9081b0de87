"""Guesses the source that fits records: its kind, its format, its columns.

===========================================  =================================================================
the values                                   the source
===========================================  =================================================================
JSON with op and before or after             kind changes; the columns of ``after``
JSON objects                                 format json; the columns of all objects
JSON of other kinds                          format json, ``v VARIANT``
five bytes with the id of a schema           ``framing = "confluent"``; the schema of the registry, if one is given
lines with the same number of separators     format csv
anything else                                format raw
===========================================  =================================================================

A topic that is compacted and whose records have keys is a table.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.pipeline.inference.types import (
    Struct,
    column_name,
    columns_of,
    ddl,
    merged,
    split_columns,
    type_of,
    type_of_word,
)

_SEPARATORS = (",", ";", "\t", "|")
_OPERATIONS = {"c", "r", "u", "d", "t", "m"}
#: If this share of the records is of one kind, records of other kinds are bad records.
_MOST = 0.9
_HEADER_BYTES = 5
_DOCUMENT = "v VARIANT"

#: Key and value of a record.
Record = tuple["bytes | None", "bytes | None"]


@dataclass
class Guess:
    """
    :ivar fields: the fields of [decode], by name.
    :ivar key_fields: the fields of [decode.key]; empty for none.
    :ivar notes: what the user should look at.
    """

    kind: str
    fields: dict[str, object]
    key_fields: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def guess(records: Sequence[Record], *, is_compacted: bool) -> Guess:
    """
    :raises ValueError: if no record has a value.
    """
    values = [value for _, value in records if value is not None]
    if not values:
        raise ValueError("no record has a value: send some records first, or write the file by hand")
    has_keys = all(key is not None for key, _ in records)
    ids = _schema_ids(values)
    bodies = [value[_HEADER_BYTES:] for value in values] if ids else values
    made = _by_json(bodies) or (None if ids else _by_csv(bodies)) or Guess("events", {"format": "raw"})
    if ids:
        _add_framing(made, ids)
    if made.kind == "events" and is_compacted and has_keys:
        made.kind = "table"
        made.notes.append("the topic is compacted: the newest record of a key is its row")
    if has_keys and made.kind != "changes":
        made.key_fields = _key([key for key, _ in records if key is not None], str(made.fields.get("schema", "")))
    missing = sum(value is None for _, value in records)
    if missing and made.kind == "events":
        made.notes.append(f"{missing} records have no value: they would be dead letters, if this is not a table")
    return made


def _schema_ids(values: Sequence[bytes]) -> Counter[int]:
    """The ids of schemas at the beginning of the values; empty if the values do not begin with ids."""
    framed = [value for value in values if len(value) > _HEADER_BYTES and value[0] == 0]
    if len(framed) < _MOST * len(values):
        return Counter()
    return Counter(int.from_bytes(value[1:_HEADER_BYTES], "big") for value in framed)


def _add_framing(made: Guess, ids: Counter[int]) -> None:
    named = ", ".join(str(each) for each in sorted(ids)[:5])
    made.notes.append(f"the values begin with ids of schemas: {named}")
    if made.fields["format"] == "json":
        made.fields["framing"] = "confluent"
    else:
        made.notes.append("run it again with --registry URL, so that the file names the schemas of a registry")


# ------------------------------------------------------------------------------------------------------------ formats


def _by_json(values: Sequence[bytes]) -> Guess | None:
    documents = [document for document in map(_document, values) if document is not _BAD]
    if len(documents) < _MOST * len(values):
        return None
    notes = []
    if len(documents) < len(values):
        notes.append(f"{len(values) - len(documents)} of {len(values)} records are not JSON: they will be dead letters")
    objects = [each for each in documents if isinstance(each, dict)]
    envelopes = [envelope for envelope in map(_envelope, objects) if envelope is not None]
    if envelopes and len(envelopes) >= _MOST * len(documents):
        rows = [row for each in envelopes if isinstance(row := each.get("after"), dict)]
        schema, found = _schema(rows)
        return Guess("changes", {"format": "json", "schema": schema}, notes=notes + found)
    if len(objects) < _MOST * len(documents):
        return Guess("events", {"format": "json", "schema": _DOCUMENT}, notes=notes)
    schema, found = _schema(objects)
    return Guess("events", {"format": "json", "schema": schema}, notes=notes + found)


_BAD = object()


def _document(value: bytes) -> object:
    """The JSON document; ``_BAD`` also for UTF-16 and a byte order mark, with which a record does not decode."""
    try:
        return json.loads(value.decode())
    except (ValueError, RecursionError):
        return _BAD


def _envelope(document: dict[str, object]) -> dict[str, object] | None:
    """The envelope of a change, without Debezium's schema part."""
    payload = document.get("payload")
    found = payload if isinstance(payload, dict) and "schema" in document else document
    rows = [found[name] for name in ("before", "after") if name in found]
    is_change = found.get("op") in _OPERATIONS and rows and all(row is None or isinstance(row, dict) for row in rows)
    return found if is_change else None


def _schema(objects: Sequence[dict[str, object]]) -> tuple[str, list[str]]:
    kind = merged(type_of(each) for each in objects)
    if not isinstance(kind, Struct) or not kind.fields:
        return _DOCUMENT, []
    return columns_of(kind)


def _by_csv(values: Sequence[bytes]) -> Guess | None:
    try:
        lines = [value.decode().rstrip("\r\n") for value in values]
    except UnicodeDecodeError:
        return None
    if any("\n" in line for line in lines):
        return None
    for separator in _SEPARATORS:
        rows = list(csv.reader(lines, delimiter=separator))
        counts = Counter(len(row) for row in rows)
        count, often = counts.most_common(1)[0]
        if count > 1 and often >= _MOST * len(rows):
            kinds = [merged(type_of_word(row[at]) for row in rows if len(row) == count) for at in range(count)]
            schema = ", ".join(f"c{at + 1} {kind}" for at, kind in enumerate(kinds))
            fields: dict[str, object] = {"format": "csv", "schema": schema}
            if separator != ",":
                fields["options"] = {"sep": separator}
            return Guess("events", fields, notes=["CSV has no names of columns: rename c1, c2, ..."])
    return None


def _key(keys: Sequence[bytes], schema_of_value: str) -> dict[str, object]:
    """The columns of keys that are JSON objects or numbers, if the value has no columns with these names."""
    documents = [_document(key) for key in keys]
    if all(isinstance(each, dict) for each in documents):
        schema, _ = _schema([each for each in documents if isinstance(each, dict)])
        names, of_value = _names(schema), _names(schema_of_value)
        return {} if names & of_value or schema == _DOCUMENT else {"format": "json", "schema": schema}
    if all(type_of(each) == "BIGINT" for each in documents):
        return {"format": "csv", "schema": "key BIGINT"}
    return {}


def _names(schema: str) -> set[str]:
    return {column_name(each).lower() for each in split_columns(schema) if each}


# -------------------------------------------------------------------------------------------------------------- drift


def drift(schema: str, records: Sequence[Record], *, is_framed: bool = False) -> tuple[list[str], dict[str, str]]:
    """How JSON records differ from the columns of a source.

    :return: the columns that no record has; the fields that the schema does not have, with their types.
    """
    values = [value[_HEADER_BYTES:] if is_framed else value for _, value in records if value is not None]
    objects = [each for each in map(_document, values) if isinstance(each, dict)]
    envelopes = [_envelope(each) for each in objects]
    if objects and all(each is not None for each in envelopes):
        objects = [row for each in envelopes if each is not None and isinstance(row := each.get("after"), dict)]
    kind = merged(type_of(each) for each in objects)
    if not isinstance(kind, Struct) or schema == _DOCUMENT:
        return [], {}
    # Spark's reader finds a field by its name in the same case only.
    there = {name for name, each in kind.fields.items() if each.count}
    declared = [column_name(each) for each in split_columns(schema)]
    new = {name: ddl(each.type) for name, each in kind.fields.items() if name not in declared}
    return [name for name in declared if name not in there], new
