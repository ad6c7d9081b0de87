"""A leader's answer to a follower's Fetch (v12 to v17), written and read by hand: this is what every acknowledgement
waits for. Records are views of the frame when they are read, and stay in their file when they are written.

The layout, with compact lengths and tags (``client/consumer/fetch_wire.py`` has that of all versions)::

    throttle_time int32, error_code int16, session_id int32, topics [
        topic string (v12) or topic_id uuid (13 on), partitions [
            index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64,
            aborted [producer_id int64, first_offset int64], preferred_read_replica int32, records bytes,
            tag 0: diverging_epoch { epoch int32, end_offset int64 }
        ]
    ]
"""

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeAlias
from uuid import UUID

from headrace.client.codec import body_at
from headrace.client.errors import BadResponse
from headrace.protocol.api import Api, EncodedReply
from headrace.protocol.encoder import Sendable, put_compact_string, put_uvarint
from headrace.protocol.errors import ErrorCode
from headrace.replication.epoch_ends import EpochEnd

TOPIC_IDS_FROM = 13

_HEAD = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
#: As a leader writes it: nothing aborted, nobody preferred.
_PARTITION_TO_FOLLOWER = Struct(">ihqqqbi")
_DIVERGING = Struct(">iq")
_NO_RECORDS = memoryview(b"")
_NO_TAGS = b"\x00"
#: One tag, the first, of so many bytes, its own tags with them.
_DIVERGING_TAG = b"\x01\x00\x0d"
_UNKNOWN = _NOBODY = -1
_NULL_ARRAY = 0

_Written: TypeAlias = tuple[bytes, Sendable | None, bytes]


class PartitionAnswer(NamedTuple):
    #: The topic's id or, in v12, its name with a compact length: as it lies in the answer.
    topic: bytes
    partition: int
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd | None
    records: memoryview


class FollowerAnswer(NamedTuple):
    error: ErrorCode
    session_id: int
    partitions: list[PartitionAnswer]


def read_answer(frame: memoryview, version: int) -> FollowerAnswer:
    """
    :param frame: from the correlation id on.
    :raises BadResponse: if it is no answer to Fetch.
    """
    try:
        return _read(frame, body_at(Api.FETCH, version, frame), has_ids=version >= TOPIC_IDS_FROM)
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"an answer to a follower's Fetch v{version} that cannot be read: {error}") from error


class AnswerWriter:
    def __init__(self, session_id: int) -> None:
        self._session_id = session_id
        self._topics: dict[bytes, list[_Written]] = {}

    def put(
        self,
        topic: bytes,
        index: int,
        high_watermark: int,
        log_start_offset: int,
        *,
        error: int = 0,
        diverging: EpochEnd | None = None,
        records: Sendable | None = None,
    ) -> None:
        """
        :param topic: its id or, in v12, its name with a compact length.
        """
        head = _PARTITION_TO_FOLLOWER.pack(
            index, error, high_watermark, _UNKNOWN, log_start_offset, _NULL_ARRAY, _NOBODY
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
    """Of the whole request."""
    return EncodedReply(bytearray(_HEAD.pack(0, error.value, 0) + b"\x01" + _NO_TAGS), [])


def topic_as_written(topic: str | UUID) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    out = bytearray()
    put_compact_string(out, topic)
    return bytes(out)


def _read(data: memoryview, at: int, *, has_ids: bool) -> FollowerAnswer:
    _, error, session_id = _HEAD.unpack_from(data, at)
    topic_count, at = _uvarint(data, at + _HEAD.size)
    partitions: list[PartitionAnswer] = []
    for _ in range(topic_count - 1):
        start = at
        if has_ids:
            at += 16
        else:
            size, at = _uvarint(data, at)
            at += size - 1
        topic = bytes(data[start:at])
        partition_count, at = _uvarint(data, at)
        for _ in range(partition_count - 1):
            answer, at = _read_partition(data, at, topic)
            partitions.append(answer)
        _, at = _read_tags(data, at)
    return FollowerAnswer(ErrorCode(error) if error else ErrorCode.none, session_id, partitions)


def _read_partition(data: memoryview, at: int, topic: bytes) -> tuple[PartitionAnswer, int]:
    index, error, high_watermark, _, log_start_offset = _PARTITION.unpack_from(data, at)
    aborted_count, at = _uvarint(data, at + _PARTITION.size)
    for _ in range(aborted_count - 1):
        _, at = _read_tags(data, at + 16)
    size, start = _uvarint(data, at + 4)
    records = _NO_RECORDS
    at = start
    if size > 1:
        at += size - 1
        if at > len(data):
            raise ValueError(f"{size - 1} bytes of records, {len(data) - start} are there")
        records = data[start:at]
    diverging, at = _read_tags(data, at)
    return PartitionAnswer(topic, index, error, high_watermark, log_start_offset, diverging, records), at


def _read_tags(data: memoryview, at: int) -> tuple[EpochEnd | None, int]:
    """Only a partition has a first tag of that length."""
    count = data[at]
    at += 1
    diverging = None
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        if tag == 0 and size > _DIVERGING.size:
            diverging = EpochEnd(*_DIVERGING.unpack_from(data, at))
        at += size
    return diverging, at


def _uvarint(data: memoryview, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = shift = 0
    while byte >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 28:
            raise ValueError("a length of more than five bytes")
        at += 1
        byte = data[at]
    return value | byte << shift, at + 1
