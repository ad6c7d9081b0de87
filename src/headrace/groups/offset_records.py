"""Encodes and decodes the record of one committed offset, quickly: a request may commit hundreds of offsets.

Key, as Kafka has it: ``type int16 = 1, group string, topic string, partition int32``. All keys of a group begin with
the same bytes, and so do all keys of one of its topics. So a request's keys are made of one prefix and four bytes
each.

Value, version 4: ``version int16, offset int64, leader_epoch int32, metadata compact string, commit_timestamp int64``
and the topic's id as tagged field 0 (``count 1, tag 0, size 16, 16 bytes``; without an id only ``count 0``). Most
metadata is short. Then its length is one byte, and the parts before and after the metadata have a fixed size: two
``struct`` calls and no schema. A commit with its own expiry time is written in version 1, which has a field for it.
Other versions, which Apache Kafka may have written into a folder that Headrace uses now, and unusual values are decoded
by their schema (``internal_records.py``).
"""

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalTopic, RecordType, decode, encode_key, encode_value

NO_EXPIRY = -1
NO_LEADER_EPOCH = -1
KEY_TYPES = frozenset((b"\x00\x00", b"\x00\x01"))

_KEY_TYPE = b"\x00\x01"
_LENGTH = Struct(">H")
_PARTITION = Struct(">i")
_VERSION = 4
_EXPIRING_VERSION = 1
_HEAD = Struct(">hqiB")
_TAIL = Struct(">qB")
_TAIL_WITH_ID = Struct(">qBBB16s")
_ID_TAG = (1, 0, 16)
#: A compact string of up to this many bytes has a length of one byte.
_SHORT_BYTES = 126


class CommittedOffset(NamedTuple):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    #: The expiry time that an old client asked for; -1 if ``offsets.retention.minutes`` decides.
    expire_timestamp_ms: int = NO_EXPIRY
    #: None if the coordinator that wrote the record did not know the id.
    topic_id: UUID | None = None


class TopicCommit(NamedTuple):
    """The offsets that a request commits for one topic."""

    topic: str
    topic_id: UUID | None
    #: Partition, offset, leader epoch and metadata of each.
    partitions: Iterable[tuple[int, int, int, str]]


def group_prefix(group_id: str) -> bytes:
    """The bytes that all keys of this group begin with, and no other keys."""
    data = group_id.encode()
    return _KEY_TYPE + _LENGTH.pack(len(data)) + data


def topic_prefix(group_id: str, topic: str) -> bytes:
    data = topic.encode()
    return group_prefix(group_id) + _LENGTH.pack(len(data)) + data


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return topic_prefix(group_id, topic) + _PARTITION.pack(partition)


def offset_keys(group_id: str, topic: str, partitions: Iterable[int]) -> list[bytes]:
    start, pack_partition = topic_prefix(group_id, topic), _PARTITION.pack
    return [start + pack_partition(partition) for partition in partitions]


def group_prefix_of(key: bytes) -> bytes:
    return key[: 4 + (key[2] << 8 | key[3])]


def group_of(prefix: bytes) -> str:
    return prefix[4:].decode()


def topic_and_partition_of(key: bytes, prefix_bytes: int) -> tuple[str, int]:
    """The topic and the partition in a key whose group prefix has that size."""
    return key[prefix_bytes + 2 : -4].decode(), _PARTITION.unpack_from(key, len(key) - 4)[0]


def checked_key(key: bytes) -> bytes:
    """The key with today's type. The first versions of Kafka had another type number for the same fields.

    :raises CorruptMessage: if the bytes are not the key of a committed offset.
    """
    if key[:2] not in KEY_TYPES:
        raise CorruptMessage(f"{key!r} is not the key of a committed offset")
    decode(InternalTopic.CONSUMER_OFFSETS, key, None)
    return key if key[1] else _KEY_TYPE + key[2:]


def write_values(
    commit: TopicCommit, group_id: str, now_ms: int, expire_timestamp_ms: int
) -> list[tuple[bytes, bytes]]:
    """The keys and values of the offsets that a request commits for one topic."""
    key_start, pack_partition = topic_prefix(group_id, commit.topic), _PARTITION.pack
    if expire_timestamp_ms != NO_EXPIRY:
        return [
            (
                key_start + pack_partition(partition),
                encode_value(
                    RecordType.OFFSET_COMMIT, _EXPIRING_VERSION, offset=offset, metadata=metadata,
                    commit_timestamp=now_ms, expire_timestamp=expire_timestamp_ms,
                ),
            )
            for partition, offset, _, metadata in commit.partitions
        ]  # fmt: skip
    tail = _tail(now_ms, commit.topic_id)
    pack_key, pack_value = _whole_key(len(key_start)).pack, _whole_value(len(tail)).pack
    return [
        (
            pack_key(key_start, partition),
            pack_value(_VERSION, offset, leader_epoch, 1, tail)
            if not metadata
            else _with_metadata(offset, leader_epoch, metadata, tail, now_ms, commit.topic_id),
        )
        for partition, offset, leader_epoch, metadata in commit.partitions
    ]


@lru_cache(maxsize=1000)
def _whole_key(start_bytes: int) -> Struct:
    return Struct(f">{start_bytes}si")


@lru_cache(maxsize=2)
def _whole_value(tail_bytes: int) -> Struct:
    """The layout of a value without metadata."""
    return Struct(f">hqiB{tail_bytes}s")


def _tail(now_ms: int, topic_id: UUID | None) -> bytes:
    return _TAIL.pack(now_ms, 0) if topic_id is None else _TAIL_WITH_ID.pack(now_ms, *_ID_TAG, topic_id.bytes)


def _with_metadata(
    offset: int, leader_epoch: int, metadata: str, tail: bytes, now_ms: int, topic_id: UUID | None
) -> bytes:
    data = metadata.encode()
    if len(data) <= _SHORT_BYTES:
        return _HEAD.pack(_VERSION, offset, leader_epoch, len(data) + 1) + data + tail
    return encode_value(
        RecordType.OFFSET_COMMIT, offset=offset, leader_epoch=leader_epoch, metadata=metadata,
        commit_timestamp=now_ms, topic_id=topic_id,
    )  # fmt: skip


def read_value(value: bytes) -> CommittedOffset:
    """
    :raises CorruptMessage: if the bytes are not the value of a committed offset.
    """
    if len(value) > _HEAD.size and value[:2] == b"\x00\x04" and 0 < value[14] < 0x80:
        tail_at = 14 + value[14]
        _, offset, leader_epoch, _ = _HEAD.unpack_from(value)
        if len(value) == tail_at + _TAIL_WITH_ID.size:
            timestamp_ms, count, tag, size_bytes, topic_id = _TAIL_WITH_ID.unpack_from(value, tail_at)
            if (count, tag, size_bytes) == _ID_TAG:
                text = _text(value[15:tail_at])
                return CommittedOffset(offset, leader_epoch, text, timestamp_ms, NO_EXPIRY, _uuid(topic_id))
        elif len(value) == tail_at + _TAIL.size:
            timestamp_ms, count = _TAIL.unpack_from(value, tail_at)
            if count == 0:
                return CommittedOffset(offset, leader_epoch, _text(value[15:tail_at]), timestamp_ms)
    return _read_by_schema(value)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CorruptMessage(f"the metadata of a committed offset is not UTF-8: {data!r}") from None


@lru_cache(maxsize=10_000)
def _uuid(data: bytes) -> UUID | None:
    """Cached, because topics are few, offsets are many, and making a UUID takes longer than the rest of a value."""
    return UUID(bytes=data) if any(data) else None


def _read_by_schema(value: bytes) -> CommittedOffset:
    record = decode(InternalTopic.CONSUMER_OFFSETS, _ANY_KEY, value)
    assert record is not None
    read = record.value
    return CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, read.topic_id
    )


#: Values are read without their keys, but decoding by the schema needs some key.
_ANY_KEY = encode_key(RecordType.OFFSET_COMMIT, group="", topic="", partition=0)
