"""Record batches to columns, many batches in one call, without the interpreter lock and without an object a record.

A body is the bytes of a batch's records in the clear (layout in ``protocol/record_body.py``). Its lengths are the word
of a stranger: each varint is read within the record that it stands in, each field must end within it, and each record
must end where its length says. Nothing outside is read, whatever the bytes are; the first fault ends the call with one
of the ``FAULTS``.

``slice_body``      where the fields of each record of one body lie: for who wants Python objects of some of them.
``decode_columns``  the columns of many batches, as Arrow lays them out: 32-bit offsets, data, validity bit by bit.
                    Headers are left raw: ``header_kernels.py`` reads them, if somebody asks.

Offsets and timestamps outside a range are left out while decoding, which is how filters reach the log.
"""

from typing import TYPE_CHECKING

from headrace.client.kernels.compiling import copy_bytes, inlined, kernel, load_byte

if TYPE_CHECKING:
    from numpy import int8, int32, int64, uint8
    from numpy.typing import NDArray

__all__ = ["BATCH_FIELDS", "FAULTS", "SLICE_FIELDS", "decode_columns", "slice_body"]

#: What a negative result says.
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

#: Rows of the table that ``slice_body`` fills; lengths of -1 are nulls.
SLICE_FIELDS = ("offset", "timestamp", "key_at", "key_end", "value_at", "value_end", "headers_at", "headers_end")
#: Columns of the table of batches that ``decode_columns`` takes.
BATCH_FIELDS = (
    "address", "size_bytes", "record_count", "base_offset", "base_timestamp", "fixed_timestamp", "is_log_append_time",
    "min_offset", "max_offset", "topic", "partition",
)  # fmt: skip

#: What ``slice_body`` found: a body without any of a kind is built into objects the quicker.
HAS_KEYS, HAS_NULL_VALUES, HAS_HEADERS, HAS_GAPS = 1, 2, 4, 8

_INT32_MAX = 2**31 - 1


@inlined
def read_varint(position: int, end: int) -> tuple[int, int]:
    """Value and position behind it; a position of -1 if it does not end before the end, or has more than 64 bits."""
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
            # The shift right is to be that of an unsigned number.
            return ((result >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(result & 1), position + 1
        shift += 7


@inlined
def read_field(position: int, end: int) -> tuple[int, int, int]:
    """Where a field with its length before it begins and ends, and the position behind; begin > end: null; -1: cut."""
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
    """(fault, end of record, timestamp delta, offset delta, key at, key end, value at, value end, headers at)."""
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
    # At least the count of headers is to follow.
    if position < 0 or position >= record_end:
        return _TOO_SHORT, 0, 0, 0, 0, 0, 0, 0, 0
    return 0, record_end, timestamp_delta, offset_delta, key_at, key_end, value_at, value_end, position


@inlined
def _timestamp(base: int, delta: int) -> tuple[int, bool]:
    timestamp = base + delta
    # Overflow: both of one sign, and the sum of the other.
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
    """Fill the table (``SLICE_FIELDS`` by record); places are from the body's begin.

    Returns a fault or the sum of what was found (``HAS_...``). For log append time ``base_timestamp`` is the time.
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
    "int64(int64[:, ::1], int64, int64, int64[::1], int64[::1], int8[::1], int32[::1], int32[::1], int32[::1], int64,"
    " uint8[::1], int32[::1], int64, uint8[::1], int64[:, ::1], int64[::1])"
)
def decode_columns(
    batches: "NDArray[int64]",
    min_timestamp: int,
    max_timestamp: int,
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
    """The records of some batches (rows of ``BATCH_FIELDS``), one after another, as far as they are in the ranges.

    The data have room for as many bytes as the bodies have together; all else for as many rows as they say (offsets
    for one more, validity for a bit each, zeroed before). ``headers`` is two addresses a row, or has no rows if nobody
    asks. ``progress`` becomes: batches done, rows, null keys, null values. After a fault all that it tells of is as
    it was before the batch with the fault.
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
            if offset < min_offset or offset > max_offset or timestamp < min_timestamp or timestamp > max_timestamp:
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
