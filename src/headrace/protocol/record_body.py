"""What is inside a record batch: its records, and how they are read; ``batch_building.py`` writes them.

After the header of ``records.py`` come ``record_count`` records, together in one codec::

    length           varint    bytes after this field
    attributes       int8      unused, 0
    timestamp_delta  varlong   from the batch's base_timestamp
    offset_delta     varint    from the batch's base_offset
    key length, key            varint, -1 for none
    value length, value        varint, -1 for none (a tombstone where there is a key)
    header count     varint
    headers                    each key length, utf-8 key, value length (-1 for none), value

Varints are little-endian groups of 7 bits with a continuation bit, zigzag, so that small negatives are short.
Deltas of a compacted batch have gaps. A batch with the delete-horizon bit has the horizon where base_timestamp was,
and its deltas count from there (KIP-534), so both kinds are read alike. A log-append-time batch gives all its records
max_timestamp. Control records (the ends of transactions) have the key (int16 version, int16 kind) and the value
(int16 version, int32 coordinator epoch).

Header keys that are not utf-8 are kept by ``surrogateescape``, since Kafka stores them and so must we.

A crc says that bytes arrived as they left, not that they make sense: every length here is the word of a stranger.
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
    "check_every_record",
    "codec_of",
    "decode_records",
    "decode_slices",
    "decompress_body",
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
    """A record as far as compaction must know it; start and end are where its bytes lie in the body."""

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
    """:raises UnsupportedCompressionType: for the numbers that no codec has."""
    try:
        return Codec(header.codec_number)
    except ValueError:
        raise UnsupportedCompressionType(f"no codec has the number {header.codec_number}") from None


def decompress_body(header: BatchHeader, batch: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The bytes of a batch's records, in the clear. The batch's header is as ``check_batch`` found it."""
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.record_count == 0 and not body:
        return b""
    return decompress(codec_of(header), body, limit_bytes=limit_bytes)


def decode_records(batch: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
    """All records of one whole batch.

    :raises CorruptMessage: if the batch is cut, fails its crc, or cannot be decompressed.
    :raises InvalidRecord: if what is inside contradicts itself.
    :raises MessageTooLarge: if the records take more than the limit once decompressed.
    """
    return list(iter_records(batch, limit_bytes=limit_bytes))


def iter_records(batch: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The records of one whole batch, one at a time: a batch of a stranger may have millions of them in a few
    kilobytes, which are not to be in memory together. Raises as :func:`decode_records`, when it gets there."""
    header = check_batch(batch)
    body = decompress_body(header, batch, limit_bytes=limit_bytes)
    yield from _decoded(body, iter_slices(header, body))


def decode_slices(body: bytes, slices: Iterable[RecordSlice]) -> list[Record]:
    """The records of some slices of a body.

    :raises InvalidRecord: if their headers contradict themselves; the rest was checked when they were sliced.
    """
    return list(_decoded(body, slices))


def _decoded(body: bytes, slices: Iterable[RecordSlice]) -> Iterator[Record]:
    new = tuple.__new__
    for offset, timestamp_ms, key, value_at, value_bytes, _, end in slices:
        headers_at = value_at + value_bytes if value_bytes > 0 else value_at
        value = body[value_at:headers_at] if value_bytes >= 0 else None
        is_bare = body[headers_at] == 0 and headers_at + 1 == end
        headers = () if is_bare else read_record_headers(body, headers_at, end)
        yield new(Record, (offset, timestamp_ms, key, value, headers))


def slice_records(header: BatchHeader, body: bytes) -> list[RecordSlice]:
    """Where each record lies, its key, and whether it has a value. Headers are stepped over, unread.

    :raises InvalidRecord: if lengths do not fit the bytes.
    """
    return list(iter_slices(header, body))


def iter_slices(header: BatchHeader, body: bytes) -> Iterator[RecordSlice]:
    """As :func:`slice_records`, one at a time."""
    count, end = header.record_count, len(body)
    if not 0 <= count <= end // _SMALLEST_RECORD_BYTES:
        _invalid(f"{count} records cannot be in {end} bytes")
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_time = header.max_timestamp if header.is_log_append_time else None
    # Straight to the tuple: a call of the class goes through one more Python function for every record.
    varint, new = read_varint, tuple.__new__
    position = 0
    try:
        for _ in range(count):
            start = position
            length, position = varint(body, position)
            record_end = position + length
            if length < 0 or record_end > end:
                _invalid(f"record of {length} bytes, {end - position} are there")
            delta, position = varint(body, position + 1)
            timestamp_ms = base_timestamp + delta if fixed_time is None else fixed_time
            if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
                _invalid("record timestamp is out of range")
            # Nearly always one byte: worth not calling.
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
                _invalid("record is shorter than its fields")
            offset = base_offset + delta
            yield new(RecordSlice, (offset, timestamp_ms, key, value_at, value_bytes, start, record_end))
            position = record_end
    except IndexError:
        _invalid("records end within a record")
    if position != end:
        _invalid(f"{end - position} bytes follow the last record")


def check_every_record(batch: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
    """All records of a batch that a producer just made: besides being well formed, they are numbered without gaps.

    :raises KafkaError: as :func:`decode_records`.
    """
    records = decode_records(batch, limit_bytes=limit_bytes)
    header = check_batch(batch)
    if header.last_offset_delta != len(records) - 1:
        _invalid(f"batch of {len(records)} records ends at offset delta {header.last_offset_delta}")
    for expected_offset, record in enumerate(records, header.base_offset):
        if record.offset != expected_offset:
            _invalid(
                f"record {expected_offset - header.base_offset} has offset delta {record.offset - expected_offset}"
            )
    return records


def read_record_headers(body: bytes, position: int, end: int) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    try:
        count, position = read_varint(body, position)
        if not 0 <= count <= end - position:
            _invalid(f"{count} headers cannot be in {end - position} bytes")
        for _ in range(count):
            key_bytes, position = read_varint(body, position)
            if not 0 <= key_bytes <= end - position:
                _invalid(f"header key of {key_bytes} bytes, {end - position} are there")
            key = body[position : position + key_bytes].decode("utf-8", "surrogateescape")
            value_bytes, position = read_varint(body, position + key_bytes)
            value = None
            if value_bytes >= 0:
                value = body[position : position + value_bytes]
                position += value_bytes
            if position > end:
                _invalid("record header is cut")
            headers.append((key, value))
    except IndexError:
        _invalid("records end within a header")
    if position != end:
        _invalid(f"{end - position} bytes follow the headers of a record")
    return tuple(headers)


def read_control_kind(key: bytes | None) -> int:
    """The number of a control record's kind; those that are not a :class:`ControlKind` are for others to know."""
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptMessage("control record has no kind")
    kind: int = CONTROL_KEY.unpack_from(key)[1]
    return kind


def _invalid(reason: str) -> NoReturn:
    raise InvalidRecord(reason)
