"""Reads the records inside a batch; ``batch_building.py`` writes them.

The header of ``records.py`` is followed by ``record_count`` records, which are compressed together::

    length           varint    bytes after this field
    attributes       int8      unused, 0
    timestamp_delta  varlong   from the batch's base_timestamp
    offset_delta     varint    from the batch's base_offset
    key length, key            varint, -1 for none
    value length, value        varint, -1 for none (a tombstone where there is a key)
    header count     varint
    headers                    each key length, utf-8 key, value length (-1 for none), value

Varints are those of ``wire/varints.py``, signed. The offset deltas of a compacted batch have gaps. In a batch with the
delete-horizon bit, the horizon replaces base_timestamp and the timestamp deltas count from it (KIP-534), so both kinds
are read in the same way. All records of a log-append-time batch have max_timestamp. Control records (the ends of
transactions) have the key (int16 version, int16 kind) and the value (int16 version, int32 coordinator epoch).

Header keys that are not UTF-8 are kept by ``surrogateescape``, because Kafka stores them too.

A crc says that bytes arrived as they were sent, not that they are valid. So every length is checked here.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple, NoReturn

from headrace.protocol.compression import DEFAULT_LIMIT_BYTES, decompress
from headrace.protocol.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from headrace.protocol.records import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    Codec,
    check_batch,
)
from headrace.protocol.wire.varints import read_varint

__all__ = [
    "ControlKind",
    "Record",
    "RecordSlice",
    "codec_of",
    "decode_records",
    "decode_slices",
    "decompress_body",
    "iter_checked",
    "iter_slices",
    "read_control_kind",
    "slice_records",
]

Headers = tuple[tuple[str, bytes | None], ...]

#: Seven fields of at least a byte each.
_SMALLEST_RECORD_BYTES = 7
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
CONTROL_KEY = Struct(">hh")
CONTROL_VALUE = Struct(">hi")


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordSlice(NamedTuple):
    """The parts of a record that compaction needs. Its bytes lie from ``start`` to ``end`` in the body."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value_at: int
    value_bytes: int
    start: int
    end: int

    @property
    def has_value(self) -> bool:
        return self.value_bytes >= 0


class ControlKind(IntEnum):
    abort = 0
    commit = 1


# ---------------------------------------------------------------------------------------------------------- reading


def codec_of(header: BatchHeader) -> Codec:
    """
    :raises UnsupportedCompressionType: if no codec has that number.
    """
    try:
        return Codec(header.codec_number)
    except ValueError:
        raise UnsupportedCompressionType(
            f"there is no compression codec with the number {header.codec_number}"
        ) from None


def decompress_body(header: BatchHeader, batch: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The bytes of a batch's records, decompressed. ``header`` comes from ``check_batch``."""
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.record_count == 0 and not body:
        return b""
    return decompress(codec_of(header), body, limit_bytes=limit_bytes)


def decode_records(batch: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
    """All records of one whole batch.

    :raises CorruptMessage: if the batch is cut, does not match its crc, or cannot be decompressed.
    :raises InvalidRecord: if the fields of the records contradict each other.
    :raises MessageTooLarge: if the decompressed records have more bytes than the limit.
    """
    header = check_batch(batch)
    body = decompress_body(header, batch, limit_bytes=limit_bytes)
    return decode_slices(body, iter_slices(header, body))


def iter_checked(batch: Buffer) -> Iterator[RecordSlice]:
    """Finds each record of one whole batch, one at a time, after a check of its headers. A batch of a few
    kilobytes may have millions of records, or a record with millions of headers, which must not be in memory together.
    Raises the errors of :func:`decode_records` when it reaches the place."""
    header = check_batch(batch)
    body = decompress_body(header, batch)
    for part in iter_slices(header, body):
        headers_at = part.value_at + max(part.value_bytes, 0)
        if body[headers_at] != 0 or headers_at + 1 != part.end:
            _check_record_headers(body, headers_at, part.end)
        yield part


def decode_slices(body: bytes, slices: Iterable[RecordSlice]) -> list[Record]:
    """The records of some slices of a body.

    :raises InvalidRecord: if their headers are invalid; the rest was checked when the body was sliced.
    """
    records: list[Record] = []
    new = tuple.__new__
    for offset, timestamp_ms, key, value_at, value_bytes, _, end in slices:
        headers_at = value_at + value_bytes if value_bytes > 0 else value_at
        value = body[value_at:headers_at] if value_bytes >= 0 else None
        is_bare = body[headers_at] == 0 and headers_at + 1 == end
        headers = () if is_bare else read_record_headers(body, headers_at, end)
        records.append(new(Record, (offset, timestamp_ms, key, value, headers)))
    return records


def slice_records(header: BatchHeader, body: bytes) -> list[RecordSlice]:
    """Yields the place of each record, its key, and whether the record has a value. Record headers are skipped.

    :raises InvalidRecord: if lengths do not fit the bytes.
    """
    return list(iter_slices(header, body))


def iter_slices(header: BatchHeader, body: bytes) -> Iterator[RecordSlice]:
    """As :func:`slice_records`, one at a time."""
    count, end = header.record_count, len(body)
    if not 0 <= count <= end // _SMALLEST_RECORD_BYTES:
        _invalid(f"{count} records do not fit into {end} bytes")
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_time = header.max_timestamp if header.is_log_append_time else None
    # tuple.__new__ directly: to call the class would cost one more Python call per record.
    varint, new = read_varint, tuple.__new__
    position = 0
    try:
        for _ in range(count):
            start = position
            length, position = varint(body, position)
            record_end = position + length
            if length < 0 or record_end > end:
                _invalid(f"a record of {length} bytes, but only {end - position} bytes follow")
            delta, position = varint(body, position + 1)
            timestamp_ms = base_timestamp + delta if fixed_time is None else fixed_time
            if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
                _invalid("the timestamp of a record is out of range")
            # Nearly always one byte, so it is read without a call.
            byte = body[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                delta, position = varint(body, position)
            key_bytes, position = varint(body, position)
            key = None
            if key_bytes >= 0:
                key = body[position : position + key_bytes]
                position += key_bytes
            value_bytes, value_at = varint(body, position)
            if (value_at if value_bytes < 0 else value_at + value_bytes) >= record_end:
                _invalid("a record is shorter than its fields")
            offset = base_offset + delta
            yield new(RecordSlice, (offset, timestamp_ms, key, value_at, value_bytes, start, record_end))
            position = record_end
    except IndexError:
        _invalid("the bytes end inside a record")
    if position != end:
        _invalid(f"{end - position} bytes follow the last record")


def read_record_headers(body: bytes, position: int, end: int) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    try:
        count, position = read_varint(body, position)
        if not 0 <= count <= end - position:
            _invalid(f"{count} record headers do not fit into {end - position} bytes")
        for _ in range(count):
            key_bytes, position = read_varint(body, position)
            if not 0 <= key_bytes <= end - position:
                _invalid(f"the key of a record header has {key_bytes} bytes, but only {end - position} bytes follow")
            key = body[position : position + key_bytes].decode("utf-8", "surrogateescape")
            value_bytes, position = read_varint(body, position + key_bytes)
            value = None
            if value_bytes >= 0:
                value = body[position : position + value_bytes]
                position += value_bytes
            if position > end:
                _invalid("the record ends inside a record header")
            headers.append((key, value))
    except IndexError:
        _invalid("the bytes end inside a record header")
    if position != end:
        _invalid(f"{end - position} bytes follow the headers of a record")
    return tuple(headers)


def _check_record_headers(body: bytes, position: int, end: int) -> None:
    """Checks what :func:`read_record_headers` checks, and makes no objects."""
    try:
        count, position = read_varint(body, position)
        if not 0 <= count <= end - position:
            _invalid(f"{count} record headers do not fit into {end - position} bytes")
        for _ in range(count):
            key_bytes, position = read_varint(body, position)
            if not 0 <= key_bytes <= end - position:
                _invalid(f"the key of a record header has {key_bytes} bytes, but only {end - position} bytes follow")
            value_bytes, position = read_varint(body, position + key_bytes)
            position += max(value_bytes, 0)
            if position > end:
                _invalid("the record ends inside a record header")
    except IndexError:
        _invalid("the bytes end inside a record header")
    if position != end:
        _invalid(f"{end - position} bytes follow the headers of a record")


def read_control_kind(key: bytes | None) -> int:
    """The kind of a control record, as a number. Numbers that are not a :class:`ControlKind` belong to newer Kafkas."""
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptMessage("the key of a control record is too short to hold its kind")
    kind: int = CONTROL_KEY.unpack_from(key)[1]
    return kind


def _invalid(reason: str) -> NoReturn:
    raise InvalidRecord(reason)
