"""A leader's answer to a follower's Fetch (v12 to v17), read where it lies: records are views of the frame.

The layout, with compact lengths and tags (``client/fetch_wire.py`` has that of all versions)::

    throttle_time int32, error_code int16, session_id int32, topics [
        topic string (v12) or topic_id uuid (13 on), partitions [
            index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64,
            aborted [producer_id int64, first_offset int64], preferred_read_replica int32, records bytes,
            tag 0: diverging_epoch { epoch int32, end_offset int64 }
        ]
    ]
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple

from headrace.client.codec import body_at
from headrace.client.errors import BadResponse
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.replication.epoch_ends import EpochEnd

TOPIC_IDS_FROM = 13

_HEAD = Struct(">ihi")
_PARTITION = Struct(">ihqqq")
_DIVERGING = Struct(">iq")
_NO_RECORDS = memoryview(b"")


class PartitionAnswer(NamedTuple):
    #: The topic's id or, in v12, its name, as it lies in the answer.
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
        reader = _Reader(frame, body_at(Api.FETCH, version, frame), has_ids=version >= TOPIC_IDS_FROM)
        return reader.answer()
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"an answer to a follower's Fetch v{version} that cannot be read: {error}") from error


class _Reader:
    def __init__(self, data: memoryview, at: int, *, has_ids: bool) -> None:
        self._data, self._at = data, at
        self._has_ids = has_ids

    def answer(self) -> FollowerAnswer:
        _, error, session_id = _HEAD.unpack_from(self._data, self._at)
        self._at += _HEAD.size
        partitions = [found for _ in range(self._uvarint() - 1) for found in self._topic()]
        return FollowerAnswer(ErrorCode(error), session_id, partitions)

    def _topic(self) -> Iterator[PartitionAnswer]:
        topic = bytes(self._slice(16 if self._has_ids else self._uvarint() - 1))
        for _ in range(self._uvarint() - 1):
            yield self._partition(topic)
        self._tags()

    def _partition(self, topic: bytes) -> PartitionAnswer:
        index, error, high_watermark, _, log_start_offset = _PARTITION.unpack_from(self._data, self._at)
        self._at += _PARTITION.size
        for _ in range(self._uvarint() - 1):
            self._at += 16
            self._tags()
        self._at += 4
        size_bytes = self._uvarint() - 1
        records = self._slice(size_bytes) if size_bytes > 0 else _NO_RECORDS
        diverging = self._tags()
        return PartitionAnswer(topic, index, error, high_watermark, log_start_offset, diverging, records)

    def _tags(self) -> EpochEnd | None:
        """Only a partition has a first tag of that length."""
        diverging = None
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            size_bytes = self._uvarint()
            if tag == 0 and size_bytes >= _DIVERGING.size:
                diverging = EpochEnd(*_DIVERGING.unpack_from(self._data, self._at))
            self._slice(size_bytes)
        return diverging

    def _slice(self, size_bytes: int) -> memoryview:
        end = self._at + size_bytes
        if size_bytes < 0 or end > len(self._data):
            raise ValueError(f"{size_bytes} bytes wanted, {len(self._data) - self._at} are there")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 35:
                raise ValueError("a length of more than five bytes")
