"""Reads a large Produce request (v3 to v13), without copying its records.

kio copies the records of each partition. A request of 9 MB then took 5 ms of the event loop, nearly all of it for the
2,200 pages of new memory. Here records are views of the frame, which the connection keeps until it has answered.
Objects of this module take longer to make than kio's, so only requests with large batches are read in this way. The
layout, in flexible versions (9 on) with compact lengths and tags::

    transactional_id nullable string, acks int16, timeout int32, topics [
        name string (up to 12) or topic_id uuid (13 on), partitions [
            index int32, records nullable bytes
        ]
    ]

The fields have kio's names and kio's types, except for the records. Tagged fields are skipped: Produce has none.
"""

from datetime import timedelta
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from headrace.protocol.wire.reader import WireReader
from headrace.protocol.wire.schema_fields import UUID_BYTES

_FLEXIBLE_FROM = 9
_TOPIC_IDS_FROM = 13
#: A request with fewer bytes, or with fewer bytes per topic and partition, is read faster by kio.
LARGE_REQUEST_BYTES = 64 * 1024
LARGE_BATCH_BYTES = 16 * 1024

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_AND_TIMEOUT = Struct(">hi")
_NO_ID = bytes(UUID_BYTES)


class PartitionData:
    __slots__ = ("index", "records")

    def __init__(self, index: int, records: memoryview | None) -> None:
        self.index = index
        self.records = records


class TopicData(NamedTuple):
    #: "" from v13 on.
    name: str
    #: None before v13.
    topic_id: UUID | None
    partition_data: tuple[PartitionData, ...]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout: timedelta
    topic_data: tuple[TopicData, ...]


def read_produce_request(frame: memoryview, at: int, version: int) -> Any:
    """Reads the body that begins at a position of the frame. The guard has checked the counts of its arrays.

    :raises ValueError, IndexError, struct.error: if the bytes are not a body of that version.
    """
    return _ProduceReader(frame, at, version).request()


class _ProduceReader(WireReader):
    __slots__ = ("_has_topic_ids", "_is_flexible")

    def __init__(self, data: memoryview, at: int, version: int) -> None:
        super().__init__(data, at)
        self._is_flexible = version >= _FLEXIBLE_FROM
        self._has_topic_ids = version >= _TOPIC_IDS_FROM

    def request(self) -> ProduceRequest:
        transactional_id = self._string()
        acks, timeout_ms = self.unpack(_ACKS_AND_TIMEOUT)
        topics = tuple(self._topic() for _ in range(self._length()))
        self._tags()
        return ProduceRequest(transactional_id, acks, timedelta(milliseconds=timeout_ms), topics)

    def _topic(self) -> TopicData:
        name, topic_id = "", None
        if self._has_topic_ids:
            id_bytes = bytes(self.slice(UUID_BYTES))
            topic_id = UUID(bytes=id_bytes) if id_bytes != _NO_ID else None
        else:
            found = self._string()
            if found is None:
                raise ValueError("the name of a topic is null")
            name = found
        partitions = tuple(self._partition() for _ in range(self._length()))
        self._tags()
        return TopicData(name, topic_id, partitions)

    def _partition(self) -> PartitionData:
        (index,) = self.unpack(_INT32)
        size_bytes = self._length()
        records = None if size_bytes < 0 else self.slice(size_bytes)
        self._tags()
        return PartitionData(index, records)

    def _string(self) -> str | None:
        size_bytes = self.uvarint() - 1 if self._is_flexible else self.unpack(_INT16)[0]
        return None if size_bytes < 0 else str(self.slice(size_bytes), "utf-8")

    def _length(self) -> int:
        """The length of an array or of records; -1 for null."""
        return self.uvarint() - 1 if self._is_flexible else self.unpack(_INT32)[0]

    def _tags(self) -> None:
        if self._is_flexible:
            self.skip_tags()
