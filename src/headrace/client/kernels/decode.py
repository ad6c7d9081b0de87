"""Decodes record batches to columns, many batches per call, without the interpreter lock or an object per record.

A body is the uncompressed records of a batch (layout in ``protocol/record_body.py``). Its lengths come from the network
and are not trusted: each varint must end within its record, each field must end within its record, and each record must
end where its length says. Nothing outside of the body is read, whatever the bytes are. The first fault ends the call
with one of the ``FAULTS``.

``slice_body``      finds the fields of each record of one body, for callers that make Python objects.
``decode_columns``  decodes many batches to columns in Arrow's layout: 32-bit offsets, data, one validity bit per row.
                    Headers are only located; ``headers.py`` reads them if they are needed.

Records with offsets outside of a range are left out.
"""

from typing import TYPE_CHECKING

from headrace.client.kernels.compiling import copy_bytes, inlined, kernel, load_byte

if TYPE_CHECKING:
    from numpy import int8, int32, int64, uint8
    from numpy.typing import NDArray

__all__ = ["BATCH_FIELDS", "FAULTS", "SLICE_FIELDS", "decode_columns", "slice_body"]

#: The meaning of a negative result.
FAULTS = {
    -1: "varint is cut or longer than its type",
    -2: "record is longer than what is there",
    -3: "record is shorter than its fields",
    -4: "bytes follow the last record",
    -5: "record header is cut",
    -6: "record timestamp is out of range",
    -7: "bytes follow the headers of a record",
    -8: "columns are full",
}
_VARINT, _TOO_LONG, _TOO_SHORT, _TRAILING, HEADER_FAULT, _TIMESTAMP, AFTER_HEADERS_FAULT, _FULL = range(-1, -9, -1)

#: The rows of the table that ``slice_body`` fills. An end before the start means null.
SLICE_FIELDS = ("offset", "timestamp", "key_at", "key_end", "value_at", "value_end", "headers_at", "headers_end")
#: The columns of the table of batches that ``decode_columns`` takes.
BATCH_FIELDS = (
    "address", "size_bytes", "record_count", "base_offset", "base_timestamp", "fixed_timestamp", "is_log_append_time",
    "min_offset", "max_offset", "topic", "partition",
)  # fmt: skip

#: Flags in the result of ``slice_body``. Objects are made faster if a flag is not set.
HAS_KEYS, HAS_NULL_VALUES, HAS_HEADERS, HAS_GAPS = 1, 2, 4, 8

_INT32_MAX = 2**31 - 1


@inlined
def read_varint(position: int, end: int) -> tuple[int, int]:
    """Returns the value and the position behind it; a position of -1 if the varint is cut or has more than 64 bits."""
    if position >= end:
        return 0, -1
    byte = load_byte(position)
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    result = byte & 0x7F
    shift = 7
    while True:
        position += 1
        if position >= end or shift > 63:
            return 0, -1
        byte = load_byte(position)
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            # The shift to the right must be that of an unsigned number.
            return ((result >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(result & 1), position + 1
        shift += 7


@inlined
def read_field(position: int, end: int) -> tuple[int, int, int]:
    """Returns start, end and next position of a field with a length; start > end means null, position -1 means cut."""
    size, position = read_varint(position, end)
    if position < 0:
        return 0, 0, -1
    if size < 0:
        return position + 1, position, position
    if size > end - position:
        return 0, 0, -1
    return position, position + size, position + size


@inlined
def _record(position: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Returns fault, end of record, timestamp delta, offset delta, key at, key end, value at, value end, headers at."""
    size, position = read_varint(position, end)
    if position < 0:
        return _VARINT, 0, 0, 0, 0, 0, 0, 0, 0
    if size < 0 or size > end - position:
        return _TOO_LONG, 0, 0, 0, 0, 0, 0, 0, 0
    record_end = position + size
    timestamp_delta, position = read_varint(position + 1, record_end)
    if position < 0:
        return _VARINT, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, position = read_varint(position, record_end)
    if position < 0:
        return _VARINT, 0, 0, 0, 0, 0, 0, 0, 0
    key_at, key_end, position = read_field(position, record_end)
    if position < 0:
        return _TOO_SHORT, 0, 0, 0, 0, 0, 0, 0, 0
    value_at, value_end, position = read_field(position, record_end)
    # At least the count of headers must follow.
    if position < 0 or position >= record_end:
        return _TOO_SHORT, 0, 0, 0, 0, 0, 0, 0, 0
    return 0, record_end, timestamp_delta, offset_delta, key_at, key_end, value_at, value_end, position


@inlined
def _timestamp(base: int, delta: int) -> tuple[int, bool]:
    timestamp = base + delta
    # Overflow: both numbers have one sign, and the sum has the other.
    return timestamp, ((base ^ timestamp) & (delta ^ timestamp)) >= 0


@inlined
def _no_headers(headers_at: int, record_end: int) -> bool:
    return headers_at + 1 == record_end and load_byte(headers_at) == 0


@kernel("int64(int64, int64, int64, int64, int64, int64, int64[:, ::1])")
def slice_body(
    address: int,
    size_bytes: int,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    is_log_append_time: int,
    table: "NDArray[int64]",
) -> int:
    """Fills the table (``SLICE_FIELDS`` by record). Positions count from the start of the body.

    Returns a fault, or the sum of the flags (``HAS_...``). With log append time, ``base_timestamp`` is that time.
    """
    position, end, found = address, address + size_bytes, 0
    if table.shape[0] < 8 or table.shape[1] < record_count:
        return _FULL
    for row in range(record_count):
        fault, record_end, time_delta, delta, key_at, key_end, value_at, value_end, headers_at = _record(position, end)
        if fault:
            return fault
        if is_log_append_time:
            timestamp = base_timestamp
        else:
            timestamp, is_in_range = _timestamp(base_timestamp, time_delta)
            if not is_in_range:
                return _TIMESTAMP
        table[0, row] = base_offset + delta
        table[1, row] = timestamp
        table[2, row] = key_at - address
        table[3, row] = key_end - address
        table[4, row] = value_at - address
        table[5, row] = value_end - address
        table[6, row] = headers_at - address
        table[7, row] = record_end - address
        if key_at <= key_end:
            found |= HAS_KEYS
        if value_at > value_end:
            found |= HAS_NULL_VALUES
        if not _no_headers(headers_at, record_end):
            found |= HAS_HEADERS
        if delta != row:
            found |= HAS_GAPS
        position = record_end
    return found if position == end else _TRAILING


@kernel(
    "int64(int64[:, ::1], int64[::1], int64[::1], int8[::1], int32[::1], int32[::1], int32[::1], int64,"
    " uint8[::1], int32[::1], int64, uint8[::1], int64[:, ::1], int64[::1])"
)
def decode_columns(
    batches: "NDArray[int64]",
    offsets: "NDArray[int64]",
    timestamps: "NDArray[int64]",
    timestamp_types: "NDArray[int8]",
    topics: "NDArray[int32]",
    partitions: "NDArray[int32]",
    key_offsets: "NDArray[int32]",
    key_data: int,
    key_validity: "NDArray[uint8]",
    value_offsets: "NDArray[int32]",
    value_data: int,
    value_validity: "NDArray[uint8]",
    headers: "NDArray[int64]",
    progress: "NDArray[int64]",
) -> int:
    """Decodes the records of some batches (rows of ``BATCH_FIELDS``) whose offsets are in the range of their batch.

    The data buffers have room for as many bytes as all bodies have. The other arrays have room for all records; the
    offsets of keys and values for one more, and the validity has one bit per record, all zero at first. ``headers`` has
    two addresses per row, or no rows if headers are not needed. ``progress`` becomes: batches done, rows, null keys,
    null values. After a fault, the rows before the batch with the fault are valid.
    """
    row = null_keys = null_values = 0
    key_bytes = value_bytes = 0
    capacity = offsets.shape[0]
    key_offsets[0] = value_offsets[0] = 0
    for index in range(batches.shape[0]):
        address, size_bytes, record_count = batches[index, 0], batches[index, 1], batches[index, 2]
        base_offset, base_timestamp, fixed_timestamp = batches[index, 3], batches[index, 4], batches[index, 5]
        is_log_append_time, min_offset, max_offset = batches[index, 6], batches[index, 7], batches[index, 8]
        progress[0] = index
        progress[1] = row
        progress[2] = null_keys
        progress[3] = null_values
        if row + record_count > capacity:
            return _FULL
        position, end = address, address + size_bytes
        for _ in range(record_count):
            fault, record_end, time_delta, delta, key_at, key_end, value_at, value_end, headers_at = _record(
                position, end
            )
            if fault:
                return fault
            position = record_end
            if is_log_append_time:
                timestamp = fixed_timestamp
            else:
                timestamp, is_in_range = _timestamp(base_timestamp, time_delta)
                if not is_in_range:
                    return _TIMESTAMP
            offset = base_offset + delta
            if offset < min_offset or offset > max_offset:
                continue
            offsets[row] = offset
            timestamps[row] = timestamp
            timestamp_types[row] = is_log_append_time
            topics[row] = batches[index, 9]
            partitions[row] = batches[index, 10]
            if key_at <= key_end:
                copy_bytes(key_data + key_bytes, key_at, key_end - key_at)
                key_bytes += key_end - key_at
                key_validity[row >> 3] |= 1 << (row & 7)
            else:
                null_keys += 1
            if value_at <= value_end:
                copy_bytes(value_data + value_bytes, value_at, value_end - value_at)
                value_bytes += value_end - value_at
                value_validity[row >> 3] |= 1 << (row & 7)
            else:
                null_values += 1
            if headers.shape[0]:
                headers[row, 0] = headers_at
                headers[row, 1] = record_end
            row += 1
            key_offsets[row] = key_bytes
            value_offsets[row] = value_bytes
        if position != end:
            return _TRAILING
    progress[0] = batches.shape[0]
    progress[1] = row
    progress[2] = null_keys
    progress[3] = null_values
    return 0
