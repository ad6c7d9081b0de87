"""Writes and reads a follower's Fetch (requests v12 and v13, responses v12 to v17).

With acks=all, every acknowledgement waits for these messages, so they are written and read by hand. Records are views
of the frame when they are read, and stay in their file when they are written.

The layout of a request, with compact lengths and tags::

    replica_id int32, max_wait int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32,
    session_epoch int32, topics [
        topic string (v12) or topic_id uuid (13 on), partitions [
            index int32, current_leader_epoch int32, fetch_offset int64, last_fetched_epoch int32,
            log_start_offset int64, max_bytes int32
        ]
    ], forgotten [ topic as above, partitions [ index int32 ] ], rack_id string

The layout of a response (``consumer_fetch.py`` has that of all versions)::

    throttle_time int32, error_code int16, session_id int32, topics [
        topic string (v12) or topic_id uuid (13 on), partitions [
            index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64,
            aborted [producer_id int64, first_offset int64], preferred_read_replica int32, records bytes,
            tag 0: diverging_epoch { epoch int32, end_offset int64 }
        ]
    ]
"""

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.wire.client_codec import BadResponse, body_at
from headrace.protocol.wire.encoder import Sendable, put_compact_string
from headrace.protocol.wire.schema_fields import UUID_BYTES
from headrace.protocol.wire.server_codec import EncodedReply
from headrace.protocol.wire.varints import LARGEST_TAG, put_uvarint, read_long_uvarint, read_uvarint

#: From this version on, topics are named by their ids.
TOPIC_IDS_FROM = 13

_NO_TAGS = b"\x00"

_REQUEST_HEAD = Struct(">iiiibii")
#: An empty tag section is part of it.
_REQUEST_PARTITION = Struct(">iiqiqib")
_INDEX = Struct(">i")
_READ_UNCOMMITTED = 0
_NO_RACK_NO_TAGS = b"\x01\x00"

_HEAD = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
#: As a leader writes it, with no aborted transactions and no preferred replica.
_PARTITION_TO_FOLLOWER = Struct(">ihqqqbi")
_PREFERRED_REPLICA_BYTES = 4
_ABORTED_BYTES = 16
_DIVERGING = Struct(">iq")
_NO_RECORDS = memoryview(b"")
#: One tagged field: the tag 0, and its length, which counts the empty tag section of the entity.
_DIVERGING_TAG = b"\x01\x00\x0d"
_UNKNOWN = _NO_PREFERRED_REPLICA = -1
_NULL_ARRAY = 0

#: A topic as it lies in requests and responses: its id or, in v12, its name with a compact length.
WrittenTopic: TypeAlias = bytes
#: The leader epoch, the fetch offset, the epoch of the last fetched record (-1: unknown), the log start offset.
FetchPosition: TypeAlias = tuple[int, int, int, int]
#: The epoch at which the logs of follower and leader diverge, and where that epoch ends in the leader's log.
DivergingEpoch: TypeAlias = tuple[int, int]
#: The bytes before a partition's records, the records, and the bytes behind them.
_WrittenPartition: TypeAlias = tuple[bytes, Sendable | None, bytes]


def topic_as_written(topic: str | UUID) -> WrittenTopic:
    if isinstance(topic, UUID):
        return topic.bytes
    out = bytearray()
    put_compact_string(out, topic)
    return bytes(out)


# ---------------------------------------------------------------------------------------------------------- requests


class FetchLimits(NamedTuple):
    """The values that are the same in all requests of a follower."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int


def write_request(
    limits: FetchLimits,
    session_id: int,
    session_epoch: int,
    asked: Iterable[tuple[WrittenTopic, int, FetchPosition]],
    forgotten: Iterable[tuple[WrittenTopic, int]],
) -> bytearray:
    """The body of a request.

    :param asked: the partitions to fetch, by topic and index.
    :param forgotten: the partitions that the leader is to remove from the fetch session.
    """
    replica_id, max_wait_ms, min_bytes, max_bytes, max_partition_bytes = limits
    out = bytearray(
        _REQUEST_HEAD.pack(replica_id, max_wait_ms, min_bytes, max_bytes, _READ_UNCOMMITTED, session_id, session_epoch)
    )
    topics: dict[WrittenTopic, list[bytes]] = {}
    for topic, index, (leader_epoch, offset, last_epoch, log_start_offset) in asked:
        topics.setdefault(topic, []).append(
            _REQUEST_PARTITION.pack(index, leader_epoch, offset, last_epoch, log_start_offset, max_partition_bytes, 0)
        )
    _put_topics(out, topics)
    topics.clear()
    for topic, index in forgotten:
        topics.setdefault(topic, []).append(_INDEX.pack(index))
    _put_topics(out, topics)
    out += _NO_RACK_NO_TAGS
    return out


def _put_topics(out: bytearray, topics: dict[WrittenTopic, list[bytes]]) -> None:
    put_uvarint(out, len(topics) + 1)
    for topic, partitions in topics.items():
        out += topic
        put_uvarint(out, len(partitions) + 1)
        out += b"".join(partitions)
        out += _NO_TAGS


# --------------------------------------------------------------------------------------------------- writing responses


class AnswerWriter:
    """Collects what a leader answers for each partition, and encodes the response."""

    def __init__(self, session_id: int) -> None:
        self._session_id = session_id
        self._topics: dict[WrittenTopic, list[_WrittenPartition]] = {}

    def put(
        self,
        topic: WrittenTopic,
        index: int,
        high_watermark: int,
        log_start_offset: int,
        *,
        error: int = 0,
        diverging: DivergingEpoch | None = None,
        records: Sendable | None = None,
    ) -> None:
        head = _PARTITION_TO_FOLLOWER.pack(
            index, error, high_watermark, _UNKNOWN, log_start_offset, _NULL_ARRAY, _NO_PREFERRED_REPLICA
        )
        tags = _NO_TAGS if diverging is None else _DIVERGING_TAG + _DIVERGING.pack(*diverging) + _NO_TAGS
        self._topics.setdefault(topic, []).append((head, records, tags))

    def encoded(self) -> EncodedReply:
        out, placed = bytearray(_HEAD.pack(0, 0, self._session_id)), list[tuple[int, Sendable]]()
        put_uvarint(out, len(self._topics) + 1)
        for topic, written in self._topics.items():
            out += topic
            put_uvarint(out, len(written) + 1)
            for head, records, tags in written:
                out += head
                if records is None:
                    out.append(1)
                else:
                    put_uvarint(out, len(records) + 1)
                    placed.append((len(out), records))
                out += tags
            out += _NO_TAGS
        out += _NO_TAGS
        return EncodedReply(out, placed)


def refusal(error: ErrorCode) -> EncodedReply:
    """The response that rejects a whole request."""
    return EncodedReply(bytearray(_HEAD.pack(0, error.value, 0) + b"\x01" + _NO_TAGS), [])


# --------------------------------------------------------------------------------------------------- reading responses


class PartitionAnswer(NamedTuple):
    topic: WrittenTopic
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: DivergingEpoch | None
    records: memoryview


class FollowerAnswer(NamedTuple):
    error: ErrorCode
    session_id: int
    partitions: list[PartitionAnswer]


def read_answer(frame: memoryview, version: int) -> FollowerAnswer:
    """
    :param frame: the response, from the correlation id on.
    :raises BadResponse: if the bytes are not a response to Fetch.
    """
    try:
        return _read(frame, body_at(Api.FETCH, version, frame), has_ids=version >= TOPIC_IDS_FROM)
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"the response to a follower's Fetch v{version} cannot be read: {error}") from error


def _read(data: memoryview, at: int, *, has_ids: bool) -> FollowerAnswer:
    _, error, session_id = _HEAD.unpack_from(data, at)
    topic_count, at = read_uvarint(data, at + _HEAD.size)
    partitions: list[PartitionAnswer] = []
    for _ in range(topic_count - 1):
        start = at
        if has_ids:
            at += UUID_BYTES
        else:
            size_bytes, at = read_uvarint(data, at)
            at += size_bytes - 1
        topic = bytes(data[start:at])
        partition_count, at = read_uvarint(data, at)
        for _ in range(partition_count - 1):
            answer, at = _read_partition(data, at, topic)
            partitions.append(answer)
        _, at = _read_tags(data, at)
    return FollowerAnswer(ErrorCode(error) if error else ErrorCode.none, session_id, partitions)


def _read_partition(data: memoryview, at: int, topic: WrittenTopic) -> tuple[PartitionAnswer, int]:
    index, error, high_watermark, _, log_start_offset = _PARTITION.unpack_from(data, at)
    at += _PARTITION.size
    # Varints of one byte, which nearly all are, are read without a call.
    aborted_count, at = data[at], at + 1
    if aborted_count > 0x7F:
        aborted_count, at = read_long_uvarint(data, at)
    for _ in range(aborted_count - 1):
        _, at = _read_tags(data, at + _ABORTED_BYTES)
    at += _PREFERRED_REPLICA_BYTES
    compact_size, start = data[at], at + 1
    if compact_size > 0x7F:
        compact_size, start = read_long_uvarint(data, start)
    records = _NO_RECORDS
    at = start
    if compact_size > 1:
        at += compact_size - 1
        if at > len(data):
            raise ValueError(f"{compact_size - 1} bytes of records, but only {len(data) - start} bytes follow")
        records = data[start:at]
    diverging, at = _read_tags(data, at)
    return PartitionAnswer(topic, index, error, high_watermark, log_start_offset, diverging, records), at


def _read_tags(data: memoryview, at: int) -> tuple[DivergingEpoch | None, int]:
    """Skips tagged fields, except a diverging epoch. Only the tag 0 of a partition has that length."""
    if not data[at]:
        return None, at + 1
    count, at = read_uvarint(data, at)
    diverging = None
    for _ in range(count):
        tag, at = read_uvarint(data, at, LARGEST_TAG)
        size_bytes, at = read_uvarint(data, at)
        if tag == 0 and size_bytes > _DIVERGING.size:
            epoch, end_offset = _DIVERGING.unpack_from(data, at)
            diverging = epoch, end_offset
        at += size_bytes
    return diverging, at
