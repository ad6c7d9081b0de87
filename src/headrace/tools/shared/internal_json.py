"""Makes JSON of records of ``__consumer_offsets`` and ``__transaction_state``, as Kafka's tools do.

Names are Kafka's (``commitTimestamp``), in the order of the layouts. The JSON has the fields of the record's version;
tagged fields appear only if they differ from their defaults. UUIDs are in the URL-safe base64 of Kafka's tools, bytes
in ordinary base64. One exception: Kafka shows the null of ``classicMemberMetadata`` (see ``internal_records.py``).

A broker does not read the bytes that members of a classic group exchange. Kafka's dump tool decodes those of consumers,
its console consumer does not; ``reads_members`` selects one of both.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.client.types import TopicPartition
from headrace.protocol.internal_layouts import LAYOUTS, InternalTopic, RecordType
from headrace.protocol.internal_records import decode
from headrace.protocol.layouts import Layout
from headrace.protocol.layouts import Struct as Fields
from headrace.protocol.wire.consumer_protocol import Unreadable, decode_assignment, decode_subscription

_INT16 = Struct(">h")
_CONSUMERS = "consumer"
_SHOWN_WHEN_NULL = "classic_member_metadata"
_NO_UUID = UUID(int=0)

JsonObject = dict[str, object]


class InternalJson(NamedTuple):
    """A record's key and value with their version numbers; the value is None for a tombstone."""

    type: RecordType
    key: JsonObject
    value: JsonObject | None
    value_version: int


class UnknownType(Exception):
    """The type of the record is unknown; a newer broker wrote it."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"Unknown record type {number}")


def read_internal(
    topic: InternalTopic, key: bytes, value: bytes | None, *, reads_members: bool = False
) -> InternalJson:
    """
    :raises CorruptMessage: if the bytes are not a record of that topic.
    :raises UnknownType: if the type is unknown.
    """
    record = decode(topic, key, value)
    if record is None:
        raise UnknownType(_INT16.unpack_from(key)[0])
    layout = LAYOUTS[record.type]
    shown_key = _struct(layout.key, record.key, 0)
    if value is None:
        return InternalJson(record.type, shown_key, None, -1)
    version: int = _INT16.unpack_from(value)[0]
    shown = _struct(layout.value, record.value, version)
    if reads_members and record.type is RecordType.GROUP_METADATA and record.value.protocol_type == _CONSUMERS:
        members = shown["members"]
        assert isinstance(members, list)
        for member, stored in zip(members, record.value.members, strict=True):
            _open_member(member, stored.subscription, stored.assignment)
    return InternalJson(record.type, shown_key, shown, version)


def _struct(struct: Fields, value: object, version: int) -> JsonObject:
    shown: JsonObject = {}
    for layout in struct.fields:
        if not layout.since <= version <= layout.until:
            continue
        content = getattr(value, layout.name)
        if layout.tag is not None and layout.name != _SHOWN_WHEN_NULL and content == layout.default:
            continue
        shown[_camel_case(layout.name)] = _shown(layout, content, version)
    return shown


def _shown(layout: Layout, content: object, version: int) -> object:
    if content is None and layout.kind != "uuid":
        return None
    if layout.is_array:
        assert isinstance(content, tuple)
        return [_single(layout.kind, item, version) for item in content]
    return _single(layout.kind, content, version)


def _single(kind: str | Fields, content: object, version: int) -> object:
    if isinstance(kind, Fields):
        return _struct(kind, content, version)
    if kind == "uuid":
        return uuid_text(content if isinstance(content, UUID) else _NO_UUID)
    if isinstance(content, bytes):
        return b64encode(content).decode()
    return content


def uuid_text(uuid: UUID) -> str:
    """An id in Kafka's notation."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# ---------------------------------------------------------------------------------------- members of classic groups


def _open_member(member: JsonObject, subscription: bytes, assignment: bytes) -> None:
    """Replaces the bytes of a member by their decoded form. Bytes that no consumer wrote stay unchanged."""
    try:
        member["subscription"] = _subscription(subscription)
        member["assignment"] = _assignment(assignment)
    except Unreadable:
        return


def _subscription(data: bytes) -> object:
    if not data:
        return ""
    told = decode_subscription(data)
    version: int = _INT16.unpack_from(data)[0]
    shown: JsonObject = {"topics": list(told.topics), "userData": _optional_bytes(told.user_data)}
    if version >= 1:
        shown["ownedPartitions"] = _by_topic(told.owned)
    if version >= 2:
        shown["generationId"] = told.generation
    if version >= 3:
        shown["rackId"] = told.rack_id
    return shown


def _assignment(data: bytes) -> object:
    if not data:
        return ""
    told = decode_assignment(data)
    return {"assignedPartitions": _by_topic(told.partitions), "userData": _optional_bytes(told.user_data)}


def _optional_bytes(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _by_topic(partitions: tuple[TopicPartition, ...]) -> list[JsonObject]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()]
