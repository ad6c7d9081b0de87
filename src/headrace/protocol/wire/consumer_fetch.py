"""Reads the response to a consumer's Fetch (v4 to v18), without copying records.

kio would copy the records, and make an object for each partition. This module walks over the frame by hand, and records
are views of the frame. The layout, in flexible versions (12 on) with compact lengths and tags::

    throttle_time int32, error_code int16 and session_id int32 (7 on), topics [
        topic string (up to 12) or topic_id uuid (13 on), partitions [
            index int32, error_code int16, high_watermark int64, last_stable_offset int64,
            log_start_offset int64 (5 on), aborted [producer_id int64, first_offset int64],
            preferred_read_replica int32 (11 on), records bytes
        ]
    ]

Tagged fields (diverging epoch, current leader, node endpoints) are skipped: after an error code the client asks for
metadata anyway.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode
from headrace.protocol.topic_partition import TopicPartition
from headrace.protocol.wire.client_codec import BadResponse, body_at
from headrace.protocol.wire.reader import WireReader
from headrace.protocol.wire.schema_fields import UUID_BYTES

_FLEXIBLE_FROM = 12
#: From this version on, topics are named by their ids.
TOPIC_IDS_FROM = 13

_THROTTLE_TIME_BYTES = 4
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_PAIR = Struct(">qq")
_SESSION = Struct(">hi")
_HEAD = Struct(">ihqq")
_OFFSET = Struct(">q")
_NO_RECORDS = memoryview(b"")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class PartitionAnswer(NamedTuple):
    """The part of a response to Fetch that describes one partition."""

    error: ErrorCode = ErrorCode.none
    records: memoryview = memoryview(b"")
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTransaction] = ()
    preferred_read_replica: int = -1


class FetchAnswer(NamedTuple):
    error: ErrorCode
    session_id: int
    partitions: list[tuple[TopicPartition, PartitionAnswer]]


def read_answer(frame: memoryview, version: int, asked: Iterable[tuple[TopicPartition, UUID | None]]) -> FetchAnswer:
    """
    :param frame: the response, from the correlation id on.
    :param asked: the partitions that the response may be about, with the ids of their topics.
    :raises BadResponse: if the bytes are not a response to Fetch.
    """
    names = {topic_id: partition.topic for partition, topic_id in asked}
    try:
        return _FetchReader(frame, body_at(Api.FETCH, version, frame), version, names).answer()
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"the response to Fetch v{version} cannot be read: {error}") from error


class _FetchReader(WireReader):
    __slots__ = ("_is_flexible", "_names", "_version")

    def __init__(self, data: memoryview, at: int, version: int, names: Mapping[UUID | None, str]) -> None:
        super().__init__(data, at)
        self._version = version
        self._is_flexible = version >= _FLEXIBLE_FROM
        self._names = names

    def answer(self) -> FetchAnswer:
        self.at += _THROTTLE_TIME_BYTES
        error, session_id = self.unpack(_SESSION) if self._version >= 7 else (0, 0)
        partitions = [found for _ in range(self._count()) for found in self._topic()]
        return FetchAnswer(ErrorCode(error), session_id, partitions)

    def _topic(self) -> Iterator[tuple[TopicPartition, PartitionAnswer]]:
        topic = self._topic_name()
        for _ in range(self._count()):
            index, answer = self._partition()
            if topic is not None:
                yield TopicPartition(topic, index), answer
        self._tags()

    def _topic_name(self) -> str | None:
        """None for an id that the request did not name."""
        if self._version >= TOPIC_IDS_FROM:
            return self._names.get(UUID(bytes=bytes(self.slice(UUID_BYTES))))
        size_bytes = self.uvarint() - 1 if self._is_flexible else self.unpack(_INT16)[0]
        return str(self.slice(size_bytes), "utf-8")

    def _partition(self) -> tuple[int, PartitionAnswer]:
        index, error, high_watermark, last_stable_offset = self.unpack(_HEAD)
        log_start_offset = self.unpack(_OFFSET)[0] if self._version >= 5 else -1
        aborted = [self._aborted() for _ in range(self._count())]
        preferred = self.unpack(_INT32)[0] if self._version >= 11 else -1
        size_bytes = self._count()
        records = self.slice(size_bytes) if size_bytes > 0 else _NO_RECORDS
        self._tags()
        code = ErrorCode(error)
        return index, PartitionAnswer(
            code, records, high_watermark, last_stable_offset, log_start_offset, aborted, preferred
        )

    def _aborted(self) -> AbortedTransaction:
        found = AbortedTransaction(*self.unpack(_PAIR))
        self._tags()
        return found

    def _count(self) -> int:
        """The length of an array or of bytes; 0 or less for null and for nothing."""
        return self.uvarint() - 1 if self._is_flexible else self.unpack(_INT32)[0]

    def _tags(self) -> None:
        if self._is_flexible:
            self.skip_tags()
