"""Reads and writes the records of ``_schemas``, in the form of Confluent's registry. Karapace writes the same form.

A key is JSON without spaces, its members in a fixed order: compaction compares keys byte by byte::

    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}       a version of a subject
    {"keytype":"CONFIG","subject":null,"magic":0}                             settings; null: of all subjects
    {"keytype":"MODE","subject":"orders-value","magic":0}                     the mode
    {"keytype":"DELETE_SUBJECT","subject":"orders-value","magic":0}           versions up to a number are deleted
    {"keytype":"NOOP","magic":0}                                              written by a new leader

A value is JSON as well. A record without a value deletes its key. Our NOOP records have a value: the largest id of each
context. Compaction removes the records of a schema that was deleted permanently. Without the NOOP record, a registry
that starts later would give the id of that schema to another schema. Confluent and Karapace ignore the value.

A record that cannot be read is passed over with one log line, as in the other registries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

_MAGIC = {"SCHEMA": 1}
MAX_IDS = "headrace_max_ids"


class UnreadableRecord(ValueError):
    """A record of the topic is not in the form of a registry."""


class Record(NamedTuple):
    """A record as the topic stores it."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Key:
    """
    :ivar subject: the qualified name; None for all subjects, and where the kind has no subject.
    """

    kind: str
    subject: str | None = None
    version: int = 0


def encode_key(key: Key) -> bytes:
    found: dict[str, object] = {"keytype": key.kind}
    if key.kind != "NOOP":
        found["subject"] = key.subject
    if key.kind == "SCHEMA":
        found["version"] = key.version
    found["magic"] = _MAGIC.get(key.kind, 0)
    return _compact(found)


def encode(key: Key, value: Mapping[str, object] | None) -> Record:
    return Record(encode_key(key), None if value is None else _compact(value))


def decode_key(data: bytes | None) -> Key:
    """
    :raises UnreadableRecord: if it is not the key of a registry's record.
    """
    found = _loads(data)
    kind, subject, version = found.get("keytype"), found.get("subject"), found.get("version", 0)
    if not isinstance(kind, str) or not (subject is None or isinstance(subject, str)):
        raise UnreadableRecord("the key has no keytype, or its subject is not text")
    if kind in ("SCHEMA", "DELETE_SUBJECT", "CLEAR_SUBJECT") and subject is None:
        raise UnreadableRecord(f"the key of type {kind} has no subject")
    if isinstance(version, bool) or not isinstance(version, int):
        raise UnreadableRecord("the version of the key is not a number")
    return Key(kind, subject, version)


def decode_value(data: bytes | None) -> dict[str, Any] | None:
    """
    :raises UnreadableRecord: if it is not a JSON object.
    """
    return None if data is None else _loads(data)


def _loads(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UnreadableRecord("not a JSON object")
    return found


def _compact(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
