"""Counts the records and bytes of fetched batches for consumer-perf-test: by kernels with Numba, otherwise in Python.

In both cases the batch is checked by its crc, decompressed, and read to its last record. No objects are made of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.consumer.record_decoding import decode_batch
from headrace.protocol.errors import InvalidRecord
from headrace.protocol.record_body import decompress_body
from headrace.protocol.records import HEADER_BYTES, check_batch

if TYPE_CHECKING:
    from headrace.client.consumer.fetch_positions import BatchToRead

_SMALLEST_RECORD_BYTES = 7


class Counted(NamedTuple):
    record_count: int
    #: Bytes of keys and values.
    size_bytes: int


Counter = Callable[[Sequence["BatchToRead"]], Counted]


def counter() -> Counter:
    """The fastest counter on this machine. Loads Numba if it is installed, which takes some tenths of a second."""
    try:
        from headrace.tools.perf import kernels as perf_kernels  # noqa: F401
    except ImportError:
        return count_by_record
    return count_by_kernel


def count_by_record(batches: Sequence[BatchToRead]) -> Counted:
    records = size_bytes = 0
    for one in batches:
        for record in decode_batch(*one.partition, one.batch.header, one.batch.data):
            if record.offset >= one.from_offset:
                records += 1
                size_bytes += len(record.key or b"") + len(record.value or b"")
    return Counted(records, size_bytes)


def count_by_kernel(batches: Sequence[BatchToRead]) -> Counted:
    """
    :raises KafkaError: if a batch cannot be read.
    """
    import numpy as np

    from headrace.tools.perf.kernels import BODY_FIELDS, count_records

    bodies: list[tuple[int, ...]] = []
    alive: list[object] = []
    for one in batches:
        header = check_batch(one.batch.data)
        data = one.batch.data[HEADER_BYTES:] if header.codec_number == 0 else decompress_body(header, one.batch.data)
        if not 0 <= header.record_count <= len(data) // _SMALLEST_RECORD_BYTES:
            raise InvalidRecord(f"{header.record_count} records cannot be in {len(data)} bytes")
        array = np.frombuffer(data, np.uint8)
        alive.append(array)
        bodies.append((array.ctypes.data, len(data), header.record_count, one.from_offset - header.base_offset))
    totals = np.zeros(2, np.int64)
    done = count_records(np.array(bodies, np.int64).reshape(len(bodies), len(BODY_FIELDS)), totals)
    if done < len(batches):
        header = batches[done].batch.header
        raise InvalidRecord(f"the batch at offset {header.base_offset} contradicts itself")
    return Counted(*totals.tolist())
