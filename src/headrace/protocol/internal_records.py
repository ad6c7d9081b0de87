"""Encodes and decodes the records of the internal topics, and computes the partition of a group or transactional id.

A key is ``type int16`` and the fields of the key. A value is ``version int16`` and the fields of that version. A record
without a value is a tombstone: it deletes what its key names. The keys of the first two types were once versions 0 and
1 of one layout, so both types are offset commits. ``internal_layouts.py`` has the layouts.

The records of a log were written by Headrace, or by an Apache Kafka that used the folder before, possibly a newer one.
So unknown types and unknown tagged fields are skipped. Any other record that cannot be read is damaged.
"""

from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_layouts import LAYOUTS, InternalTopic, RecordType
from headrace.protocol.kio import Reader, UnknownTag, decode_failures, entity_reader
from headrace.protocol.layouts import schema_of
from headrace.protocol.wire.array_guard import Guard, GuardFailed, budget, guard_of
from headrace.protocol.wire.encoder import Encode, encoder_of
from headrace.protocol.wire.unknown_tags import without_unknown_tags

__all__ = [
    "InternalRecord",
    "InternalTopic",
    "RecordType",
    "decode",
    "encode_key",
    "encode_value",
    "java_hash",
    "partition_for",
]

_MEMBER = RecordType.CONSUMER_GROUP_MEMBER_METADATA
#: The last bytes of the metadata of a member that does not use the classic protocol: one tagged field, with the tag 0
#: and a length of one byte, which is null. It must be written: for Kafka an absent field is empty, and not null. Our
#: schemas have null as the default, and kio cannot read a tagged field that is null. A value with something in that
#: field has other last bytes: the counts of tags, 0 and 0, of its last protocol and of the field itself.
_NULL_TAG = b"\x01\x00\x01\x00"
_NO_TAGS = b"\x00"

_INT16 = Struct(">h")
_PREFIX_BYTES = _INT16.size


class InternalRecord(NamedTuple):
    """A decoded record. Key and value are ``Any``: their attributes are the fields of the type's layout."""

    type: RecordType
    key: Any
    #: None for a tombstone.
    value: Any


class _Codec(NamedTuple):
    """Writes and reads one key layout, or one version of a value."""

    schema: type
    prefix: bytes
    names: frozenset[str]
    encode: Encode
    guard: Guard
    read: Reader


def encode_key(record_type: RecordType, /, **fields: object) -> bytes:
    codec = _KEY_CODECS.get(record_type) or _key_codec(record_type)
    return _encode(codec, fields)


def encode_value(record_type: RecordType, version: int | None = None, /, **fields: object) -> bytes:
    """Encodes a value, by default in the version that Kafka 4.3 writes. Fields that the version lacks are left out.

    Type and version are positional, because a record has a field named ``version``.
    """
    codec = _VALUE_CODECS.get((record_type, version)) or _value_codec(record_type, version)
    value = _encode(codec, fields)
    if record_type is _MEMBER and fields.get("classic_member_metadata") is None:
        return value[: -len(_NO_TAGS)] + _NULL_TAG
    return value


def decode(topic: InternalTopic, key: bytes, value: bytes | None) -> InternalRecord | None:
    """Decodes a record of a topic; returns None for a type that only newer brokers know.

    :raises CorruptMessage: if the bytes are not a record of the topic.
    """
    try:
        (number,) = _INT16.unpack_from(key)
        record_type = _TYPES[topic].get(number)
        if record_type is None:
            return None
        codec = _KEY_CODECS.get(record_type) or _key_codec(record_type)
        read_key = codec.read(key, _PREFIX_BYTES)[0]
        if value is None:
            return InternalRecord(record_type, read_key, None)
        if record_type is _MEMBER and value.endswith(_NULL_TAG):
            value = value[: -len(_NULL_TAG)] + _NO_TAGS
        (version,) = _INT16.unpack_from(value)
        codec = _VALUE_CODECS.get((record_type, version)) or _value_codec(record_type, version)
        return InternalRecord(record_type, read_key, _read(codec, value))
    except GuardFailed + decode_failures() as error:
        raise CorruptMessage(f"a record of {topic.value} cannot be read: {error}") from None


def _encode(codec: _Codec, fields: dict[str, object]) -> bytes:
    assert codec.names.issuperset(fields), f"{codec.schema.__name__} has no fields {fields.keys() - codec.names}"
    out = bytearray(codec.prefix)
    codec.encode(out, fields, [])
    return bytes(out)


def _read(codec: _Codec, value: bytes) -> Any:
    codec.guard(memoryview(value), _PREFIX_BYTES, len(value), budget())
    try:
        return codec.read(value, _PREFIX_BYTES)[0]
    except UnknownTag:
        return codec.read(without_unknown_tags(codec.schema, memoryview(value)[_PREFIX_BYTES:]), 0)[0]


_TYPES = {topic: {kind.number: kind for kind in RecordType if kind.topic is topic} for topic in InternalTopic}
#: The codecs that were used so far. A codec is compiled at its first use, because most brokers need few of them.
_KEY_CODECS: dict[RecordType, _Codec] = {}
_VALUE_CODECS: dict[tuple[RecordType, int | None], _Codec] = {}


def _key_codec(record_type: RecordType) -> _Codec:
    layout = LAYOUTS[record_type].key
    codec = _codec(
        schema_of(layout, 0, is_flexible=False), record_type.number, frozenset(f.name for f in layout.fields)
    )
    return _KEY_CODECS.setdefault(record_type, codec)


def _value_codec(record_type: RecordType, version: int | None) -> _Codec:
    layout = LAYOUTS[record_type]
    number = layout.written_version if version is None else version
    if number not in layout.versions:
        raise ValueError(f"{layout.value.name} has no version {number}")
    schema = schema_of(layout.value, number, is_flexible=number >= layout.flexible_since)
    codec = _codec(schema, number, frozenset(f.name for f in layout.value.fields))
    return _VALUE_CODECS.setdefault((record_type, version), codec)


@cache
def _codec(schema: type, number: int, names: frozenset[str]) -> _Codec:
    return _Codec(schema, _INT16.pack(number), names, encoder_of(schema), guard_of(schema), entity_reader(schema))


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: of the UTF-16 code units, as a signed number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for(key: str, count: int) -> int:
    """The partition of an internal topic that holds a group, or a transactional id."""
    hashed = abs(java_hash(key))
    # Java cannot negate its smallest integer; Kafka uses 0 instead.
    return 0 if hashed == 2**31 else hashed % count
