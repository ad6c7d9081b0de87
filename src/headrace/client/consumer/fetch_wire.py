"""Fetch (v4 to v18) as a consumer writes and reads it: requests from fetch sessions, answers without copying records.

kio would copy the records of an answer, and make an object a partition; here the frame is walked by hand, and records
are views of it. The layout of an answer, in flexible versions (12 on) with compact lengths and tags::

    throttle_time int32, error_code int16 and session_id int32 (7 on), topics [
        topic string (up to 12) or topic_id uuid (13 on), partitions [
            index int32, error_code int16, high_watermark int64, last_stable_offset int64,
            log_start_offset int64 (5 on), aborted [producer_id int64, first_offset int64],
            preferred_read_replica int32 (11 on), records bytes
        ]
    ]

Tags (diverging epoch, current leader, node endpoints) are stepped over: an error code makes us ask for metadata anyway.
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any, NamedTuple
from uuid import UUID

from headrace.client.codec import body_at
from headrace.client.consumer.fetch_positions import PartitionAnswer
from headrace.client.consumer.fetch_session import SessionRequest
from headrace.client.consumer.fetched_batches import AbortedTransaction
from headrace.client.errors import BadResponse
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.errors import ErrorCode

_FLEXIBLE_FROM = 12
#: From here on topics go by their ids.
TOPIC_IDS_FROM = 13

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_PAIR = Struct(">qq")
_SESSION = Struct(">hi")
_HEAD = Struct(">ihqq")
_OFFSET = Struct(">q")
_NO_RECORDS = memoryview(b"")


class FetchLimits(NamedTuple):
    """What is the same in every request of a consumer."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    rack_id: str = ""


class FetchAnswer(NamedTuple):
    error: ErrorCode
    session_id: int
    partitions: list[tuple[TopicPartition, PartitionAnswer]]


# ---------------------------------------------------------------------------------------------------------- requests


def request_fields(request: SessionRequest, limits: FetchLimits) -> dict[str, Any]:
    """For any version; topics have both names and ids, of which each version takes its own."""
    topics: dict[tuple[str, UUID | None], list[dict[str, int]]] = {}
    for (topic, partition), wanted in request.partitions.items():
        topics.setdefault((topic, wanted.topic_id), []).append(
            {
                "partition": partition,
                "current_leader_epoch": wanted.current_leader_epoch,
                "fetch_offset": wanted.fetch_offset,
                "last_fetched_epoch": wanted.last_fetched_epoch,
                "log_start_offset": -1,
                "partition_max_bytes": wanted.max_bytes,
            }
        )
    forgotten: dict[tuple[str, UUID | None], list[int]] = {}
    for (topic, partition), topic_id in request.forgotten.items():
        forgotten.setdefault((topic, topic_id), []).append(partition)
    return {
        "replica_id": -1,
        "max_wait": limits.max_wait_ms,
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "isolation_level": int(limits.read_committed),
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": _by_topic(topics),
        "forgotten_topics_data": _by_topic(forgotten),
        "rack_id": limits.rack_id,
    }


def _by_topic(topics: Mapping[tuple[str, UUID | None], object]) -> list[dict[str, object]]:
    return [{"topic": name, "topic_id": topic_id, "partitions": found} for (name, topic_id), found in topics.items()]


def highest_version(request: SessionRequest) -> int | None:
    """The version that must not be passed; none if all topics have ids."""
    ids = (*(wanted.topic_id for wanted in request.asked.values()), *request.forgotten.values())
    return TOPIC_IDS_FROM - 1 if None in ids else None


# ----------------------------------------------------------------------------------------------------------- answers


def read_answer(frame: memoryview, version: int, asked: Iterable[tuple[TopicPartition, UUID | None]]) -> FetchAnswer:
    """
    :param frame: from the correlation id on.
    :param asked: what the answer may be about, with the ids of topics.
    :raises BadResponse: if it is no answer to Fetch.
    """
    names = {topic_id: partition.topic for partition, topic_id in asked}
    try:
        return _Reader(frame, body_at(Api.FETCH, version, frame), version, names).answer()
    except (StructError, IndexError, ValueError) as error:
        raise BadResponse(f"an answer to Fetch v{version} that cannot be read: {error}") from error


class _Reader:
    def __init__(self, data: memoryview, at: int, version: int, names: Mapping[UUID | None, str]) -> None:
        self._data, self._at = data, at
        self._version = version
        self._is_flexible = version >= _FLEXIBLE_FROM
        self._names = names

    def answer(self) -> FetchAnswer:
        self._at += 4  # throttle time
        error, session_id = self._take(_SESSION) if self._version >= 7 else (0, 0)
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
        """None for an id that we did not ask about."""
        if self._version >= TOPIC_IDS_FROM:
            return self._names.get(UUID(bytes=bytes(self._slice(16))))
        size_bytes = self._uvarint() - 1 if self._is_flexible else self._take(_INT16)[0]
        return str(self._slice(size_bytes), "utf-8")

    def _partition(self) -> tuple[int, PartitionAnswer]:
        index, error, high_watermark, last_stable_offset = self._take(_HEAD)
        log_start_offset = self._take(_OFFSET)[0] if self._version >= 5 else -1
        aborted = [self._aborted() for _ in range(self._count())]
        preferred = self._take(_INT32)[0] if self._version >= 11 else -1
        size_bytes = self._count()
        records = self._slice(size_bytes) if size_bytes > 0 else _NO_RECORDS
        self._tags()
        code = ErrorCode(error)
        return index, PartitionAnswer(
            code, records, high_watermark, last_stable_offset, log_start_offset, aborted, preferred
        )

    def _aborted(self) -> AbortedTransaction:
        found = AbortedTransaction(*self._take(_PAIR))
        self._tags()
        return found

    def _take(self, layout: Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def _count(self) -> int:
        """Of an array or of bytes; none are 0 or less."""
        return self._uvarint() - 1 if self._is_flexible else self._take(_INT32)[0]

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

    def _tags(self) -> None:
        if self._is_flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._slice(self._uvarint())
