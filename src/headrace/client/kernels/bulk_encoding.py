"""Encodes many records in Python objects to a batch, by the kernel that also encodes Arrow tables.

Python joins the values and computes their offsets; the kernel does the rest. It takes 0.1 µs per record, a quarter of
the time that ``producer/record_encoding.py`` takes in Python. The call itself takes 60 µs, so it is for batches of many
records.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.client.kernels.encode import DESCRIPTION_FIELDS, encode_batches
from headrace.protocol.records import HEADER_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["encode_many"]

_NO_NUMBERS = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.uint8)
#: The most bytes of a record in addition to its data: lengths, deltas, the count of headers, the attributes.
_RECORD_OVERHEAD_BYTES = 40
_NO_LIMIT = 2**62


def encode_many(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, times: Sequence[tuple[int, int]]
) -> memoryview:
    """Does the same as ``record_encoding.encode_records``, for records without headers."""
    count = len(values)
    value_offsets, value_data, value_is_valid = _column(values)
    key_offsets, key_data, key_is_valid = _column(keys) if keys is not None else (_NO_NUMBERS, b"", _NO_BYTES)
    timestamps = np.empty(count, np.int64)
    for first, ms in times:
        timestamps[first:] = ms
    output = np.empty(HEADER_BYTES + len(value_data) + len(key_data) + _RECORD_OVERHEAD_BYTES * count, np.uint8)
    described = np.empty((1, len(DESCRIPTION_FIELDS)), np.int64)
    batches = encode_batches(
        _NO_NUMBERS, np.zeros(count, np.int32), timestamps, key_offsets, _address(key_data), key_is_valid,
        value_offsets, _address(value_data), value_is_valid, _NO_NUMBERS, _NO_NUMBERS, 0, _NO_NUMBERS, 0, _NO_BYTES,
        _NO_LIMIT, output.ctypes.data, len(output), described,
    )  # fmt: skip
    assert batches == 1, "the computed size of a batch is too small"
    return output.data[HEADER_BYTES : int(described[0, 2])]


def _column(items: Sequence[bytes | None]) -> "tuple[NDArray[np.int64], bytes, NDArray[np.uint8]]":
    count = len(items)
    is_valid = _NO_BYTES
    if None in items:
        is_valid = np.fromiter((item is not None for item in items), np.uint8, count)
        items = [item or b"" for item in items]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(map(len, items), np.int64, count), out=offsets[1:])  # type: ignore[arg-type]
    return offsets, b"".join(items), is_valid  # type: ignore[arg-type]


def _address(data: bytes) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data) if data else 0
