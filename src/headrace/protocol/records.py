"""Reads the header of a record batch (version 2) and checks its crc. The records inside are not read.

::

    0   base_offset           int64    first offset of the batch
    8   batch_length          int32    bytes after this field
    12  leader_epoch          int32    epoch of the leader that appended it
    16  magic                 int8     2
    17  crc                   uint32   crc32c of everything from byte 21 on
    21  attributes            int16    bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
    23  last_offset_delta     int32
    27  base_timestamp        int64
    35  max_timestamp         int64
    43  producer_id           int64    -1 where the producer is not idempotent
    51  producer_epoch        int16
    53  base_sequence         int32
    57  record_count          int32
    61  records               possibly compressed

The crc does not cover the first 21 bytes. So a broker sets the offset and the epoch of a batch by rewriting 16 bytes,
and stores the rest unchanged. The records are decoded only where that is necessary (``record_body.py``).
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from headrace.crc import crc32c
from headrace.protocol.errors import CorruptMessage

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
#: The base offset and the length: with these bytes the size of a batch is known.
LENGTH_PREFIX_BYTES = 12
_LENGTH = Struct(">i")
_LENGTH_AT = 8
#: The bytes that a broker rewrites: base offset, length (unchanged), leader epoch.
HEAD = Struct(">qii")
CRC = Struct(">I")
CRC_FIELD_AT = 17
CRC_STARTS_AT = 21
#: The attributes have two bytes. All bits that are used are in the second one.
ATTRIBUTES_LOW_BYTE_AT = 22
MAGIC_AT = 16
MAGIC = 2

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

#: Bits of the attributes.
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
_CODEC_MASK = 0x07


class Codec(IntEnum):
    """The names are the values of ``compression.type``."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap to 0 after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec_number(self) -> int:
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is the time from which tombstones may be dropped, and not a time of a record."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def has_producer(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position. The caller knows that a batch begins there; nothing is checked."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def size_of_batch(buffer: Buffer, position: int = 0) -> int:
    """The size of a batch, as its header says. The buffer must hold at least the length prefix."""
    batch_length: int = _LENGTH.unpack_from(buffer, position + _LENGTH_AT)[0]
    return LENGTH_PREFIX_BYTES + batch_length


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a batch, after a check that the buffer holds all of the batch, and of its magic and crc.

    :raises CorruptMessage: if a check fails.
    """
    available_bytes = len(buffer) - position
    if available_bytes < HEADER_BYTES:
        raise CorruptMessage(f"{available_bytes} bytes are too few for a record batch")
    header = read_header(buffer, position)
    if header.magic != MAGIC:
        raise CorruptMessage(f"a record batch has magic {header.magic}, not {MAGIC}")
    if not HEADER_BYTES <= header.size_bytes <= available_bytes:
        raise CorruptMessage(
            f"a record batch has {header.size_bytes} bytes by its header, but only {available_bytes} bytes follow"
        )
    if compute_crc(buffer, position, header.size_bytes) != header.crc:
        raise CorruptMessage(f"the record batch at offset {header.base_offset} does not match its crc")
    return header


def compute_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    return crc32c(memoryview(buffer)[position + CRC_STARTS_AT : position + size_bytes])


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """The positions and headers of the whole batches in a buffer that comes from a log. An incomplete last batch is
    left out."""
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.size_bytes > end - position:
            return
        yield position, header
        position += header.size_bytes
