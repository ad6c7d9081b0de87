"""Builds, for every API that Headrace serves, requests with an array of any number of elements.

A request is named by its API, its version and the path of the array that is blown up::

    frame = build(Api.LIST_OFFSETS, 7, 1_000_000, ("topics", "partitions"))

gives ListOffsets of one topic with a million partitions. The schema is kio's, and the request is legal: names, ids and
partition numbers of the elements are unique, and what a rule asks for is in ``_VALUES``. Arrays that lead to the path
have one element, as have arrays inside of the blown up elements. All other arrays are empty, or null where null means
everything.

Speed: one element is encoded with markers where elements differ. Numpy repeats the bytes and overwrites the markers
with numbers. A million elements take less than a second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any
from uuid import UUID

import numpy as np

from headrace.protocol.api import Api, versions_of
from headrace.protocol.kio import load_request_schema
from headrace.protocol.wire.encoder import nested_encoder
from headrace.protocol.wire.schema_fields import FieldKind
from headrace.protocol.wire.server_codec import read_request_header
from headrace.protocol.wire.varints import put_uvarint
from headrace.testing.raw_client import encode_request

Path = tuple[str, ...]

#: What elements differ in. None of these bytes is anywhere else in an encoded element.
_TEXT_MARKER = "~" * 8
_INT_MARKER = 0x7B7B7B7B
_UUID_MARKER = UUID(bytes=b"\x7c" * 16)
_MARKERS = (_TEXT_MARKER.encode(), _INT_MARKER.to_bytes(4, "big"), _UUID_MARKER.bytes)
_DIGITS = 10 ** np.arange(7, -1, -1)
_FIRST_TAG = 1 << 26

#: Values of fields, at any depth, that a legal request of the API needs to differ from 0 and from the common texts.
_VALUES: dict[Api, dict[str, Any]] = {
    Api.PRODUCE: {"acks": 1, "timeout": 5_000, "transactional_id": None},
    Api.FETCH: {"replica_id": -1, "max_wait": 0, "max_bytes": 1_048_576, "partition_max_bytes": 1_024},
    Api.LIST_OFFSETS: {"replica_id": -1, "timestamp": -1, "current_leader_epoch": -1},
    Api.CREATE_ACLS: {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3},
    Api.DELETE_ACLS: {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 1, "permission_type": 1},
    Api.METADATA: {"allow_auto_topic_creation": False},
    Api.OFFSET_COMMIT: {"member_id": "", "generation_id": -1, "generation_id_or_member_epoch": -1},
    Api.OFFSET_FETCH: {"member_id": None, "member_epoch": -1},
    Api.JOIN_GROUP: {
        "member_id": "",
        "session_timeout": 30_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
    },
    Api.CREATE_TOPICS: {
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
        "timeout": 5_000,
        "validate_only": True,
    },
    Api.DELETE_TOPICS: {"timeout": 5_000},
    Api.DELETE_RECORDS: {"timeout": 5_000},
    Api.OFFSET_FOR_LEADER_EPOCH: {"replica_id": -1, "current_leader_epoch": -1},
    Api.DESCRIBE_CONFIGS: {"resource_type": 2},
    Api.ALTER_CONFIGS: {"resource_type": 2, "name": "retention.ms", "value": "1000", "validate_only": True},
    Api.INCREMENTAL_ALTER_CONFIGS: {
        "resource_type": 2,
        "name": "retention.ms",
        "value": "1000",
        "validate_only": True,
    },
    Api.ALTER_CLIENT_QUOTAS: {
        "entity_type": "client-id",
        "key": "producer_byte_rate",
        "value": 1_000.0,
        "remove": True,
        "validate_only": True,
    },
    Api.CREATE_PARTITIONS: {"count": 2, "timeout": 5_000, "validate_only": True},
    Api.ELECT_LEADERS: {"timeout": 5_000},
    Api.ALTER_PARTITION_REASSIGNMENTS: {"timeout": 5_000},
    Api.CONSUMER_GROUP_HEARTBEAT: {
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 60_000,
        "topic_partitions": (),
    },
    Api.DESCRIBE_TOPIC_PARTITIONS: {"response_partition_limit": 2_000},
}
#: The newest version in which clients and not brokers name the partitions (KIP-890).
_CLIENTS_ADD_PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """The topic and the group that a request names where the name is not blown up."""

    topic: str = "large"
    topic_id: UUID | None = None
    group: str = "large-group"


def array_paths(api: Api, version: int) -> list[Path]:
    """The paths of all arrays in a request, outer ones before those inside of them."""
    return list(_array_paths(load_request_schema(api, version), ()))


def client_versions(api: Api) -> list[int]:
    """The oldest and the newest version of a request that clients send."""
    versions = versions_of(api)
    newest = _CLIENTS_ADD_PARTITIONS if api is Api.ADD_PARTITIONS_TO_TXN else versions[-1]
    return sorted({versions[0], newest})


def build(
    api: Api, version: int, element_count: int, path: Path | None = None, subject: Subject | None = None
) -> bytes:
    """A frame without its length, with ``element_count`` elements in the array at ``path``.

    :param path: None is the first array of the request.
    """
    path = array_paths(api, version)[0] if path is None else path
    builder = _Builder(api, version, element_count, path, subject or Subject())
    return encode_request(api, version, 1, "large", **builder.message())


def with_header_tags(frame: bytes, tag_count: int) -> bytes:
    """The frame of a flexible version with that many unknown tagged fields in its header."""
    tags_at = read_request_header(memoryview(frame)).body_at - 1
    assert frame[tags_at] == 0, "the header has tagged fields already"
    return frame[:tags_at] + _tags(tag_count) + frame[tags_at + 1 :]


def with_body_tags(frame: bytes, tag_count: int) -> bytes:
    """The frame of a flexible version with that many unknown tagged fields at the end of its body."""
    assert frame[-1] == 0, "the body has tagged fields already"
    return frame[:-1] + _tags(tag_count)


def elements_at(body: Any, path: Path) -> Sequence[Any]:
    """The elements of the blown up array, in a body that kio has read."""
    *outer, last = path
    for name in outer:
        (body,) = getattr(body, name)
    found: Sequence[Any] = getattr(body, last)
    return found


def _array_paths(schema: type, above: Path) -> Iterator[Path]:
    for field in fields(schema):
        kind = FieldKind(field)
        if kind.is_array:
            yield (*above, field.name)
            if kind.entity is not None:
                yield from _array_paths(kind.entity, (*above, field.name))


class _Builder:
    def __init__(self, api: Api, version: int, element_count: int, path: Path, subject: Subject) -> None:
        self._schema = load_request_schema(api, version)
        self._values = _VALUES.get(api, {})
        self._count = element_count
        self._path = path
        self._subject = subject

    def message(self) -> dict[str, Any]:
        return self._entity(self._schema, self._path)

    def _entity(self, schema: type, path: Path, *, is_blown_up: bool = False) -> dict[str, Any]:
        """The fields of an entity on the way to the path, of a blown up element, or inside of such an element.

        :param path: what is left of the path: nothing for a blown up element and for what is inside of it.
        """
        names = {field.name for field in fields(schema)}
        given: dict[str, Any] = {}
        for field in fields(schema):
            kind = FieldKind(field)
            if path and field.name == path[0]:
                given[field.name] = self._array(kind, path)
            elif kind.tag is None:
                is_inside = not path
                self._put(given, field.name, kind, is_inside=is_inside, is_blown_up=is_blown_up, names=names)
        return given

    def _array(self, kind: FieldKind, path: Path) -> list[Any]:
        if len(path) > 1:
            assert kind.entity is not None
            return [self._entity(kind.entity, path[1:])]
        if kind.entity is None:
            return _numbered(kind.kafka_type, self._count)
        out = bytearray()
        nested_encoder(self._schema, *self._path)(out, self._entity(kind.entity, (), is_blown_up=True), [])
        # The encoder takes an element that is bytes as it is: the first one holds all of them.
        return [_repeated(bytes(out), self._count), *([b""] * (self._count - 1))]

    def _put(
        self, given: dict[str, Any], name: str, kind: FieldKind, *, is_inside: bool, is_blown_up: bool, names: set[str]
    ) -> None:
        """Sets one field that is not on the path, unless the schema's own default will do."""
        marker = _marker(name, kind, names) if is_blown_up else None
        if marker is not None:
            given[name] = marker
        elif name in self._values:
            given[name] = self._values[name]
        elif kind.is_array:
            if not kind.is_nullable:
                given[name] = self._inner(kind) if is_inside else ()
        elif kind.entity is not None:
            if not kind.is_nullable:
                given[name] = self._entity(kind.entity, ())
        elif kind.kafka_type == "string":
            if not kind.is_nullable or name == "name":
                given[name] = self._subject.group if "group" in name else self._subject.topic
        elif kind.kafka_type == "uuid":
            given[name] = self._subject.topic_id
        elif kind.kafka_type in ("bytes", "records"):
            given[name] = None if kind.is_nullable else b""
        elif name.endswith("leader_epoch") or name == "session_epoch":
            given[name] = -1
        else:
            given[name] = 0

    def _inner(self, kind: FieldKind) -> list[Any]:
        return [self._entity(kind.entity, ())] if kind.entity is not None else _numbered(kind.kafka_type, 1)


def _marker(name: str, kind: FieldKind, names: set[str]) -> Any:
    """What elements of an array differ in: their names or ids, and their partition's number."""
    if kind.is_array or kind.entity is not None:
        return None
    if kind.kafka_type == "string" and (not kind.is_nullable or name == "name"):
        return _TEXT_MARKER
    if kind.kafka_type == "uuid" and "name" not in names:
        return _UUID_MARKER
    if kind.kafka_type == "int64" and name == "producer_id":
        return _INT_MARKER << 32 | _INT_MARKER
    is_number = name in ("index", "partition", "partition_index", "id", "broker_id")
    return _INT_MARKER if kind.kafka_type == "int32" and is_number else None


def _numbered(kafka_type: str, count: int) -> list[Any]:
    if kafka_type == "string":
        return [f"n{number:08d}" for number in range(count)]
    if kafka_type == "int8":  # there are few kinds of anything
        return [2] * count
    return list(range(count))


def _repeated(element: bytes, count: int) -> bytes:
    """The bytes of an element as often as wanted, each with its own number in place of the markers."""
    numbers = np.arange(count, dtype=np.int64)
    rows = np.tile(np.frombuffer(element, np.uint8), (count, 1))
    text, integer, uuid = _MARKERS
    for at in _places(element, text):
        rows[:, at : at + 8] = numbers[:, None] // _DIGITS % 10 + ord("0")
    for marker in (integer, uuid):
        for at in _places(element, marker):
            rows[:, at : at + len(marker)] = 0
            end = at + len(marker)
            rows[:, end - 4 : end] = numbers.astype(">i4").view(np.uint8).reshape(-1, 4)
            if marker is uuid:
                rows[:, at] = 0xEE  # or the first would be the id that means none
    return rows.tobytes()


def _tags(count: int) -> bytes:
    """A section of tagged fields without content, whose numbers no schema has and all take four bytes."""
    numbers = np.arange(_FIRST_TAG, _FIRST_TAG + count, dtype=np.int64)
    assert count <= _FIRST_TAG, "a larger number takes more bytes"
    rows = np.zeros((count, 5), np.uint8)
    for place in range(4):
        rows[:, place] = numbers >> 7 * place & 0x7F | (0x80 if place < 3 else 0)
    out = bytearray()
    put_uvarint(out, count)
    return bytes(out) + rows.tobytes()


def _places(element: bytes, marker: bytes) -> Iterator[int]:
    at = element.find(marker)
    while at >= 0:
        yield at
        at = element.find(marker, at + len(marker))
