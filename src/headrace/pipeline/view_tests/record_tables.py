"""Makes a record from its table in a test file.

Fields without an underscore are the fields of the value. Names with an underscore mean the same as the columns that a
query has of each record::

    _key         the key: a text; a table if the source decodes keys. The columns of [decode.key] may also stand beside
                 the fields of the value
    _timestamp   a time, or milliseconds since 1970. Without it: a second after the record before
    _partition   0 if it is not given
    _topic       for a source of several topics
    _headers     a table of texts

and these say what the value is::

    _value       a table of fields that is not checked against the schema, or a text
    _text        the bytes of this text          _base64   bytes
    _tombstone   true: no value
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.pipeline.project.decode import Decode
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.project.toml_files import did_you_mean
from headrace.pipeline.view_tests.cases import Record
from headrace.pipeline.view_tests.documents import Document
from headrace.pipeline.view_tests.encoding import NotEncoded, encode, json_text
from headrace.pipeline.view_tests.places import Path as Place
from headrace.pipeline.view_tests.schema_columns import known_columns, misfit

_OWN = ("_key", "_timestamp", "_partition", "_topic", "_headers", "_value", "_text", "_base64", "_tombstone")
_VALUES = ("_value", "_text", "_base64", "_tombstone")
_MAX_PARTITIONS = 100
_SECOND_MS = 1000
#: The time of the first record of a test, if the test does not say one: 2026-01-01T00:00:00Z.
FIRST_MS = 1_767_225_600_000


def is_null(value: object) -> bool:
    """Whether a value stands for NULL. TOML has no null: ``{ null = true }`` is one."""
    return value is None or (isinstance(value, Mapping) and dict(value) == {"null": True})


def plain(value: Any) -> Any:
    """The value with None for every ``{ null = true }`` in it."""
    if is_null(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


class _Wrong(Exception):
    """A mistake in a record: its message, and the field."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class RecordReader:
    """Reads the records of one test, in the order in which they are sent."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._next_ms = FIRST_MS

    def records(self, source: SourceDefinition, topic: str, tables: Any, place: Place) -> Iterator[Record]:
        """
        :param topic: the topic that the test names instead of a source; empty if it names a source.
        """
        if not isinstance(tables, list):
            self._document.report(f"the records of {place[-1]} must be a list of tables", place)
            return
        for index, table in enumerate(tables):
            at = (*place, index)
            if not isinstance(table, Mapping):
                self._document.report('a record must be a table, such as { user = "ann", ms = 7 }', at)
                continue
            try:
                yield self._record(source, topic, {name: plain(value) for name, value in table.items()})
            except _Wrong as error:
                self._document.report(str(error), (*at, error.name) if error.name else at)

    def _record(self, source: SourceDefinition, topic: str, table: dict[str, Any]) -> Record:
        for name in table:
            if name.startswith("_") and name not in _OWN:
                raise _Wrong(f"a record has no field {name}{did_you_mean(name, _OWN)}", name)
        given = [name for name in _VALUES if name in table]
        fields = {name: value for name, value in table.items() if not name.startswith("_")}
        if len(given) > 1:
            raise _Wrong(f"a record has one value: remove {given[0]} or {given[1]}", given[1])
        key, fields = _key(source, table, fields)
        if given and fields:
            other = next(iter(fields))
            raise _Wrong(f"{other} has no effect beside {given[0]}: remove one of them", other)
        value = _given_value(source.decode, given[0], table[given[0]]) if given else self._value(source, fields)
        if source.is_table and key is None and not given:
            raise _Wrong(f"a record of the table {source.name} needs a key: add _key, or {_key_columns(source)}")
        timestamp_ms = self._timestamp_ms(table)
        return Record(_topic(source, topic, table), _partition(table), timestamp_ms, key, value, _headers(table))

    def _value(self, source: SourceDefinition, fields: Mapping[str, Any]) -> bytes:
        _check_fields(source.name, source.decode, fields)
        return _encoded(source.decode, fields)

    def _timestamp_ms(self, table: Mapping[str, Any]) -> int:
        given = table.get("_timestamp")
        if given is None:
            found = self._next_ms
        elif isinstance(given, datetime.datetime):
            found = round((given if given.tzinfo else given.replace(tzinfo=datetime.UTC)).timestamp() * 1000)
        elif isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 1 << 62:
            found = given
        else:
            raise _Wrong("_timestamp must be a time such as 2026-11-16T08:30:00Z, or milliseconds", "_timestamp")
        self._next_ms = found + _SECOND_MS
        return found


def _key_columns(source: SourceDefinition) -> str:
    return f"the columns {', '.join(known_columns(source.decode.key) or ())}" if source.decode.key else "[decode.key]"


def _key(
    source: SourceDefinition, table: Mapping[str, Any], fields: dict[str, Any]
) -> tuple[bytes | None, dict[str, Any]]:
    """The bytes of the key, and the fields that are left for the value."""
    decode = source.decode.key
    columns = (known_columns(decode) or {}) if decode is not None else {}
    of_key = {name: value for name, value in fields.items() if name in columns}
    rest = {name: value for name, value in fields.items() if name not in columns}
    if "_key" not in table:
        if decode is None or not of_key:
            return None, fields
        _check_fields(f"the key of {source.name}", decode, of_key)
        return _encoded(decode, of_key), rest
    if of_key:
        raise _Wrong(f"{next(iter(of_key))} is a column of the key: remove it, or remove _key", "_key")
    given = table["_key"]
    if given is None:
        return None, fields
    if isinstance(given, Mapping):
        if decode is not None:
            _check_fields(f"the key of {source.name}", decode, given)
        return _encoded(decode, given) if decode is not None else json_text(given).encode(), fields
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise _Wrong("_key must be a text, a whole number or a table", "_key")
    return str(given).encode(), fields


def _encoded(decode: Decode, fields: Mapping[str, Any]) -> bytes:
    try:
        return encode(decode, fields)
    except NotEncoded as error:
        raise _Wrong(str(error)) from None


def _check_fields(name: str, decode: Decode, fields: Mapping[str, Any]) -> None:
    columns = known_columns(decode)
    if columns is None:
        return
    for field, value in fields.items():
        if field not in columns:
            raise _Wrong(f"{name} has no column {field}{did_you_mean(field, columns)}", field)
        if wanted := misfit(value, columns[field]):
            advice = "; to send it nevertheless, put the fields into _value"
            raise _Wrong(f"{field} is {columns[field]}: write {wanted}{advice}", field)


def _given_value(decode: Decode, name: str, given: Any) -> bytes | None:
    if name == "_tombstone":
        if given is not True:
            raise _Wrong("_tombstone must be true; without it the record has a value", name)
        return None
    if name == "_value" and isinstance(given, Mapping):
        return json_text(given).encode() if decode.format == "json" else _encoded(decode, given)
    if not isinstance(given, str):
        raise _Wrong(f"{name} must be a text{' or a table' if name == '_value' else ''}", name)
    if name != "_base64":
        return given.encode()
    try:
        return base64.b64decode(given, validate=True)
    except binascii.Error:
        raise _Wrong("_base64 is not base64", name) from None


def _topic(source: SourceDefinition, topic: str, table: Mapping[str, Any]) -> str:
    given = table.get("_topic", topic)
    if given:
        if not isinstance(given, str) or not source.reads(given):
            which = did_you_mean(str(given), source.topics) if source.topics else f": its pattern is {source.pattern}"
            raise _Wrong(f"{source.name} does not read the topic {given}{which}", "_topic")
        return given
    if len(source.topics) == 1:
        return source.topics[0]
    raise _Wrong(f"{source.name} reads several topics: say which one with _topic", "")


def _partition(table: Mapping[str, Any]) -> int:
    given = table.get("_partition", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < _MAX_PARTITIONS:
        raise _Wrong(f"_partition must be a whole number from 0 to {_MAX_PARTITIONS - 1}", "_partition")
    return given


def _headers(table: Mapping[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    given = table.get("_headers", {})
    if not isinstance(given, Mapping) or not all(each is None or isinstance(each, str) for each in given.values()):
        raise _Wrong('_headers must be a table of texts, such as { trace = "7" }', "_headers")
    return tuple((name, None if value is None else value.encode()) for name, value in given.items())
