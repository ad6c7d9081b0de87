"""Decodes a fetched batch to a list of records, in the fastest way that this machine has.

There are two ways, with the same result:

- Python, which is always there. It takes about 1.4 µs per record of 100 bytes. It reads varints of one and two bytes
  in line, because a function call costs as much as a whole record should.
- Numba (``kernels.decode.slice_body``), which takes 0.4 µs. The kernel finds the positions of the fields. Then C code
  that walks over columns (``zip``, ``map``) makes all records. Columns without variation are not read. The result is a
  sequence that makes records when it is sliced: ten thousand waiting records would cost the garbage collector more than
  making them later does.

``kernels/loading.py`` decides when Numba is loaded.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, overload

from headrace.client.kernels.loading import KernelLoading
from headrace.client.types import ConsumedRecord, TimestampType
from headrace.protocol.compression import DEFAULT_LIMIT_BYTES
from headrace.protocol.errors import InvalidRecord
from headrace.protocol.record_body import Headers, decompress_body, read_record_headers
from headrace.protocol.records import BatchHeader, Buffer, check_batch
from headrace.protocol.wire.varints import read_varint

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

__all__ = ["decode_batch", "preload_kernels"]

_SMALLEST_RECORD_BYTES = 7
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def decode_batch(
    topic: str,
    partition: int,
    header: BatchHeader,
    batch: Buffer,
    *,
    check_crc: bool = True,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Sequence[ConsumedRecord]:
    """Decodes all records of one whole batch, whose header was read already.

    :raises CorruptMessage: if the checksum of the batch is wrong, or the records cannot be decompressed.
    :raises InvalidRecord: if the records are malformed.
    :raises MessageTooLarge: if the decompressed records are larger than the limit.
    """
    if check_crc:
        header = check_batch(batch)
    body = decompress_body(header, batch, limit_bytes=limit_bytes)
    count = header.record_count
    if not 0 <= count <= len(body) // _SMALLEST_RECORD_BYTES:
        _invalid(f"{count} records cannot be in {len(body)} bytes")
    kernels = _loading.when_busy(count)
    if kernels is None:
        return _by_python(topic, partition, header, body)
    return _by_kernel(kernels, topic, partition, header, body)


_TYPES = (TimestampType.create_time, TimestampType.log_append_time)


def _invalid(reason: str) -> NoReturn:
    raise InvalidRecord(reason)


# -------------------------------------------------------------------------------------------------------- by kernel


def _by_kernel(
    kernels: ModuleType, topic: str, partition: int, header: BatchHeader, body: bytes
) -> Sequence[ConsumedRecord]:
    import numpy as np

    count, is_fixed = header.record_count, header.is_log_append_time
    table = np.empty((len(kernels.SLICE_FIELDS), count), np.int64)
    base_timestamp = header.max_timestamp if is_fixed else header.base_timestamp
    address = np.frombuffer(body, np.uint8).ctypes.data if body else 0
    found = kernels.slice_body(address, len(body), count, header.base_offset, base_timestamp, is_fixed, table)
    if found < 0:
        _invalid(kernels.FAULTS[found])
    records = SlicedRecords(topic, partition, header, body, table, found)
    # The kernel has not checked the headers. Making the records now raises an error if a header is malformed.
    return records[:] if found & SlicedRecords.HAS_HEADERS else records


class SlicedRecords(Sequence[ConsumedRecord]):
    """The records of a batch whose fields are located. A slice of the sequence makes the records."""

    __slots__ = ("_body", "_found", "_header", "_partition", "_table", "_topic")

    #: The flags of ``kernels/decode.py``, which is not imported because it needs Numba.
    HAS_KEYS, HAS_NULL_VALUES, HAS_HEADERS, HAS_GAPS = 1, 2, 4, 8

    def __init__(
        self, topic: str, partition: int, header: BatchHeader, body: bytes, table: "NDArray[int64]", found: int
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._header = header
        self._body = body
        self._table = table
        self._found = found

    def __len__(self) -> int:
        return self._header.record_count

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return iter(self[:])

    @overload
    def __getitem__(self, index: int) -> ConsumedRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumedRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumedRecord | list[ConsumedRecord]:
        if not isinstance(index, slice):
            at = range(len(self))[index]
            return self[at : at + 1][0]
        header, body, found = self._header, self._body, self._found
        places = range(len(self))[index]
        table = self._table[:, index]
        if found & self.HAS_GAPS:
            offsets: Iterable[int] = table[0].tolist()
        else:
            first = header.base_offset
            offsets = range(first + places.start, first + places.stop, places.step)
        is_fixed = header.is_log_append_time
        timestamps = repeat(header.max_timestamp) if is_fixed else table[1].tolist()
        keys = _slices(body, table[2].tolist(), table[3].tolist()) if found & self.HAS_KEYS else repeat(None)
        starts, ends = table[4].tolist(), table[5].tolist()
        if found & self.HAS_NULL_VALUES:
            values = _slices(body, starts, ends)
        else:
            values = [body[start:end] for start, end in zip(starts, ends, strict=True)]
        headers: Iterable[Headers] = repeat(())
        if found & self.HAS_HEADERS:
            pairs = zip(table[6].tolist(), table[7].tolist(), strict=True)
            headers = [read_record_headers(body, start, end) for start, end in pairs]
        rows = zip(
            repeat(self._topic, len(places)), repeat(self._partition), offsets, timestamps, repeat(_TYPES[is_fixed]),
            keys, values, headers, repeat(header.leader_epoch),
        )  # fmt: skip
        # tuple.__new__ directly: a call of the class would cost one more Python function per record.
        return list(map(tuple.__new__, repeat(ConsumedRecord), rows))


def _slices(body: bytes, starts: list[int], ends: list[int]) -> list[bytes | None]:
    """Cuts fields out of the body. A start behind the end means null."""
    return [body[start:end] if start <= end else None for start, end in zip(starts, ends, strict=True)]


# -------------------------------------------------------------------------------------------------------- by Python


def _by_python(topic: str, partition: int, header: BatchHeader, body: bytes) -> list[ConsumedRecord]:
    end = len(body)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_time = header.max_timestamp if header.is_log_append_time else None
    timestamp_type, leader_epoch = _TYPES[header.is_log_append_time], header.leader_epoch
    varint, new = read_varint, tuple.__new__
    records: list[ConsumedRecord] = []
    position = 0
    try:
        for _ in range(header.record_count):
            length = body[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            elif (high := body[position + 1]) < 0x80:
                length = length & 0x7F | high << 7
                length, position = (length >> 1) ^ -(length & 1), position + 2
            else:
                length, position = varint(body, position)
            record_end = position + length
            if length < 0 or record_end > end:
                _invalid(f"record of {length} bytes, {end - position} are there")

            timestamp_ms = body[position + 1]
            if timestamp_ms < 0x80:
                timestamp_ms, position = (timestamp_ms >> 1) ^ -(timestamp_ms & 1), position + 2
            else:
                timestamp_ms, position = varint(body, position + 1)
            if fixed_time is not None:
                timestamp_ms = fixed_time
            else:
                timestamp_ms += base_timestamp
                if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
                    _invalid("record timestamp is out of range")

            offset = body[position]
            if offset < 0x80:
                offset, position = (offset >> 1) ^ -(offset & 1), position + 1
            elif (high := body[position + 1]) < 0x80:
                offset = offset & 0x7F | high << 7
                offset, position = (offset >> 1) ^ -(offset & 1), position + 2
            else:
                offset, position = varint(body, position)

            length = body[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = varint(body, position)
            if length < 0:
                key = None
            else:
                key = body[position : position + length]
                position += length

            length = body[position]
            if length < 0x80:
                length, position = (length >> 1) ^ -(length & 1), position + 1
            elif (high := body[position + 1]) < 0x80:
                length = length & 0x7F | high << 7
                length, position = (length >> 1) ^ -(length & 1), position + 2
            else:
                length, position = varint(body, position)
            if length < 0:
                value = None
            else:
                value = body[position : position + length]
                position += length

            if position >= record_end:
                _invalid("record is shorter than its fields")
            if position + 1 == record_end and body[position] == 0:
                headers: Headers = ()
            else:
                headers = read_record_headers(body, position, record_end)
            fields = (
                topic, partition, base_offset + offset, timestamp_ms, timestamp_type, key, value, headers, leader_epoch,
            )  # fmt: skip
            records.append(new(ConsumedRecord, fields))
            position = record_end
    except IndexError:
        _invalid("records end within a record")
    if position != end:
        _invalid(f"{end - position} bytes follow the last record")
    return records


_loading = KernelLoading("headrace.client.kernels.decode")


def preload_kernels() -> bool:
    """Loads the kernels now, for programs that will read many records. Returns False if Numba is not installed."""
    return _loading.now() is not None
