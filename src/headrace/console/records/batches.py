"""Takes batches apart into records, and keeps what only the batch knows: producer, sequence, transaction, control.

A record may have a million headers, and a batch of a few kilobytes may decompress to gigabytes. So a batch has a limit
when it is decompressed, and only the first headers of a record become objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.protocol.errors import InvalidRecord, KafkaError
from headrace.protocol.record_body import ControlKind, RecordSlice, decompress_body, iter_slices, read_control_kind
from headrace.protocol.records import BatchHeader, check_batch
from headrace.protocol.wire.varints import read_varint

LARGEST_BODY_BYTES = 64 * 1024 * 1024
MOST_HEADERS = 100

HeaderPairs = tuple[tuple[str, bytes | None], ...]


class RawRecord(NamedTuple):
    """A record as the broker stores it.

    :ivar headers: the first ones; ``header_count`` says how many there are.
    :ivar problem: why the batch cannot be read. Then the record stands for the whole batch.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    header_count: int
    size_bytes: int
    batch: BatchHeader
    problem: str = ""

    @property
    def control(self) -> str:
        """The kind of a control record: ``commit``, ``abort`` or its number; empty if it is none."""
        if not self.batch.is_control:
            return ""
        try:
            kind = read_control_kind(self.key)
            return ControlKind(kind).name
        except (KafkaError, ValueError):
            return "unknown"


def body_of(batch: memoryview) -> bytes:
    """The uncompressed records of a batch.

    :raises KafkaError: if the batch is damaged, or larger than the limit.
    """
    return decompress_body(check_batch(batch), batch, limit_bytes=LARGEST_BODY_BYTES)


def records_of(partition: int, header: BatchHeader, batch: memoryview, from_offset: int = 0) -> Iterator[RawRecord]:
    """The records of a batch from an offset on. A batch that cannot be read is one record with a problem."""
    try:
        yield from records_of_body(partition, header, body_of(batch), from_offset)
    except KafkaError as error:
        yield unreadable(partition, header, str(error))


def unreadable(partition: int, header: BatchHeader, problem: str) -> RawRecord:
    """The record that stands for a batch that cannot be read."""
    return RawRecord(
        partition, header.base_offset, header.max_timestamp, None, None, (), 0, header.size_bytes, header, problem
    )


def records_of_body(partition: int, header: BatchHeader, body: bytes, from_offset: int = 0) -> Iterator[RawRecord]:
    """
    :raises KafkaError: if the records are malformed.
    """
    for part in iter_slices(header, body):
        if part.offset >= from_offset:
            yield record_of(partition, header, body, part)


def record_of(partition: int, header: BatchHeader, body: bytes, part: RecordSlice) -> RawRecord:
    offset, timestamp_ms, key, value_at, value_bytes, start, end = part
    headers_at = value_at + max(value_bytes, 0)
    value = body[value_at:headers_at] if value_bytes >= 0 else None
    headers: HeaderPairs = ()
    count = 0
    if body[headers_at]:
        count, headers = _headers(body, headers_at, end)
    return RawRecord(partition, offset, timestamp_ms, key, value, headers, count, end - start, header)


def _headers(body: bytes, position: int, end: int) -> tuple[int, HeaderPairs]:
    """The number of headers, and the first of them."""
    found: list[tuple[str, bytes | None]] = []
    try:
        count, position = read_varint(body, position)
        for _ in range(min(count, MOST_HEADERS)):
            size, position = read_varint(body, position)
            key = body[position : position + size].decode("utf-8", "replace")
            size_of_value, position = read_varint(body, position + size)
            value = None if size_of_value < 0 else body[position : position + size_of_value]
            position += max(size_of_value, 0)
            if size < 0 or position > end:
                raise InvalidRecord("the record ends inside a record header")
            found.append((key, value))
    except IndexError:
        raise InvalidRecord("the bytes end inside a record header") from None
    return count, tuple(found)
