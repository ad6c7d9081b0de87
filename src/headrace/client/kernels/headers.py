"""Decodes record headers to columns of ``list<struct<key, value>>``. Few records have headers, so it is a second pass.

Both kernels take the addresses that ``decode.decode_columns`` found: per row the start and the end of its headers. The
first kernel checks all headers and computes the room that is needed. The second kernel fills the columns.
"""

from typing import TYPE_CHECKING

from headrace.client.kernels.compiling import copy_bytes, kernel
from headrace.client.kernels.decode import AFTER_HEADERS_FAULT, HEADER_FAULT, read_field, read_varint

if TYPE_CHECKING:
    from numpy import int32, int64, uint8
    from numpy.typing import NDArray

__all__ = ["count_headers", "decode_headers"]


@kernel("int64(int64[:, ::1], int64, int64[::1])")
def count_headers(places: "NDArray[int64]", rows: int, totals: "NDArray[int64]") -> int:
    """Returns a fault, or 0. Fills the totals of headers, key bytes and value bytes."""
    headers = key_bytes = value_bytes = 0
    for row in range(rows):
        position, end = places[row, 0], places[row, 1]
        count, position = read_varint(position, end)
        if position < 0 or count < 0 or count > end - position:
            return HEADER_FAULT
        for _ in range(count):
            start, stop, position = read_field(position, end)
            if position < 0 or start > stop:  # The key of a header must not be null.
                return HEADER_FAULT
            key_bytes += stop - start
            start, stop, position = read_field(position, end)
            if position < 0:
                return HEADER_FAULT
            if start <= stop:
                value_bytes += stop - start
        if position != end:
            return AFTER_HEADERS_FAULT
        headers += count
    totals[0], totals[1], totals[2] = headers, key_bytes, value_bytes
    return 0


@kernel("int64(int64[:, ::1], int64, int32[::1], int32[::1], int64, int32[::1], int64, uint8[::1])")
def decode_headers(
    places: "NDArray[int64]",
    rows: int,
    list_offsets: "NDArray[int32]",
    key_offsets: "NDArray[int32]",
    key_data: int,
    value_offsets: "NDArray[int32]",
    value_data: int,
    value_validity: "NDArray[uint8]",
) -> int:
    """Fills the columns that ``count_headers`` has measured. Returns the number of null values."""
    header = key_bytes = value_bytes = nulls = 0
    list_offsets[0] = key_offsets[0] = value_offsets[0] = 0
    for row in range(rows):
        position, end = places[row, 0], places[row, 1]
        count, position = read_varint(position, end)
        for _ in range(count):
            start, stop, position = read_field(position, end)
            copy_bytes(key_data + key_bytes, start, stop - start)
            key_bytes += stop - start
            start, stop, position = read_field(position, end)
            if start <= stop:
                copy_bytes(value_data + value_bytes, start, stop - start)
                value_bytes += stop - start
                value_validity[header >> 3] |= 1 << (header & 7)
            else:
                nulls += 1
            header += 1
            key_offsets[header] = key_bytes
            value_offsets[header] = value_bytes
        list_offsets[row + 1] = header
    return nulls
