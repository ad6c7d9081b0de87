"""Decodes fetched batches to one Arrow RecordBatch, without a Python object per record and with one copy of each byte.

The columns are those of Spark's Kafka source, with Python's names::

    topic           dictionary<int32, string>
    partition       int32
    offset          int64
    timestamp       timestamp[ms, UTC]
    timestamp_type  int8                    0: set by the producer, 1: set by the broker
    key, value      binary
    headers         list<struct<key: string, value: binary>>    only with include_headers

A caller may limit the offsets. Batches outside of the limits are not decompressed. In other batches the kernel leaves
out the records outside of the limits.

A ``binary`` column has at most 2 GiB. Batches that do not fit are left for another call, and so are the batches behind
one that cannot be read: :class:`Decoded` says how many batches were decoded, and why no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from headrace.client.kernels.decode import BATCH_FIELDS, FAULTS, decode_columns
from headrace.client.kernels.headers import count_headers, decode_headers
from headrace.client.types import TopicPartition
from headrace.protocol.compression import DEFAULT_LIMIT_BYTES
from headrace.protocol.errors import InvalidRecord, KafkaError
from headrace.protocol.record_body import decompress_body
from headrace.protocol.records import HEADER_BYTES, BatchHeader, check_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.client.consumer.fetch_positions import BatchToRead

__all__ = ["HEADERS_TYPE", "Decoded", "RecordRange", "arrow_schema", "batches_to_arrow", "decode_batches"]

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_FIELDS = [
    pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", _TIMESTAMP, nullable=False),
    pa.field("timestamp_type", pa.int8(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
]
_SCHEMA = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS_TYPE, nullable=False)])

_SMALLEST_RECORD_BYTES = 7
_MOST_BYTES = 2**31 - 1
_INT64_MAX = 2**63 - 1


class RecordRange(NamedTuple):
    """The last offset to read per partition. The first offset to read comes with each batch."""

    max_offsets: Mapping[TopicPartition, int] = {}


ALL = RecordRange()


class Decoded(NamedTuple):
    """The result of decoding."""

    records: pa.RecordBatch
    #: The number of batches that were decoded, from the first one on.
    batches: int
    #: The error of the next batch; None if all are decoded, or if the next one does not fit.
    error: KafkaError | None


def arrow_schema(*, include_headers: bool = False) -> pa.Schema:
    return _SCHEMA_WITH_HEADERS if include_headers else _SCHEMA


def batches_to_arrow(
    batches: Sequence[BatchToRead],
    *,
    include_headers: bool = False,
    check_crcs: bool = True,
    wanted: RecordRange = ALL,
) -> pa.RecordBatch:
    """Decodes all batches.

    :raises KafkaError: if a batch cannot be read.
    :raises OverflowError: if the records take more than 2 GiB.
    """
    decoded = decode_batches(batches, include_headers=include_headers, check_crcs=check_crcs, wanted=wanted)
    if decoded.error is not None:
        raise decoded.error
    if decoded.batches < len(batches):
        raise OverflowError(
            "more than 2 GiB of records do not fit into one RecordBatch: decode fewer batches at a time"
        )
    return decoded.records


def decode_batches(
    batches: Sequence[BatchToRead],
    *,
    include_headers: bool = False,
    check_crcs: bool = True,
    wanted: RecordRange = ALL,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Decoded:
    """Decodes as many batches as can be read and fit: at least one, or the result has an error.

    :param limit_bytes: the largest size of a decompressed batch.
    """
    plan = _Plan(wanted, check_crcs=check_crcs, limit_bytes=limit_bytes)
    for one in batches:
        if not plan.add(one):
            break
    try:
        records, bodies_done, fault = _decode(plan, include_headers)
    except InvalidRecord as error:  # The headers of a batch are malformed. Halving finds the batches before it.
        if len(batches) == 1:
            return Decoded(_nothing(include_headers), 0, error)
        return decode_batches(
            batches[: (len(batches) + 1) // 2],
            include_headers=include_headers,
            check_crcs=check_crcs,
            wanted=wanted,
            limit_bytes=limit_bytes,
        )
    reason = plan.error if fault == 0 else InvalidRecord(FAULTS[fault])
    done = plan.batches if fault == 0 else plan.batch_of_body[bodies_done]
    return Decoded(records, done, reason)


def _nothing(include_headers: bool) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(include_headers=include_headers))


class _Plan:
    """The batches to decode, in the form that the kernel takes. The plan keeps their memory alive."""

    def __init__(self, wanted: RecordRange, *, check_crcs: bool, limit_bytes: int) -> None:
        self._wanted = wanted
        self._check_crcs = check_crcs
        self._limit_bytes = limit_bytes
        self.batches = 0
        self.error: KafkaError | None = None
        self.rows: list[tuple[int, ...]] = []
        #: The index of the batch of each body.
        self.batch_of_body: list[int] = []
        self.topics: dict[str, int] = {}
        self.record_count = 0
        self.size_bytes = 0
        self._alive: list[object] = []

    def add(self, one: BatchToRead) -> bool:
        """Adds a batch. Returns False if it does not fit, or has an error, which is kept in ``error``."""
        header = one.batch.header
        max_offset = self._wanted.max_offsets.get(one.partition, _INT64_MAX)
        if header.base_offset <= max_offset:
            try:
                address, size_bytes = self._body(header, one.batch.data)
            except KafkaError as error:
                self.error = error
                return False
            if self.size_bytes + size_bytes > _MOST_BYTES and self.rows:
                return False
            topic, partition = one.partition
            is_log_append_time = header.is_log_append_time
            self.rows.append(
                (
                    address, size_bytes, header.record_count, header.base_offset, header.base_timestamp,
                    header.max_timestamp, is_log_append_time, one.from_offset, max_offset,
                    self.topics.setdefault(topic, len(self.topics)), partition,
                )
            )  # fmt: skip
            self.batch_of_body.append(self.batches)
            self.record_count += header.record_count
            self.size_bytes += size_bytes
        self.batches += 1
        return True

    def _body(self, header: BatchHeader, data: memoryview) -> tuple[int, int]:
        if self._check_crcs:
            check_batch(data)
        if header.codec_number == 0:
            body: bytes | memoryview = data[HEADER_BYTES:]
        else:
            body = decompress_body(header, data, limit_bytes=self._limit_bytes)
        size_bytes = len(body)
        if not 0 <= header.record_count <= size_bytes // _SMALLEST_RECORD_BYTES:
            raise InvalidRecord(f"{header.record_count} records cannot be in {size_bytes} bytes")
        if not size_bytes:
            return 0, 0
        array = np.frombuffer(body, np.uint8)
        self._alive.append(array)
        return array.ctypes.data, size_bytes


def _decode(plan: _Plan, include_headers: bool) -> tuple[pa.RecordBatch, int, int]:
    """Returns (records, bodies done, fault)."""
    count, bodies = plan.record_count, len(plan.rows)
    table = np.array(plan.rows, np.int64).reshape(bodies, len(BATCH_FIELDS))
    offsets, timestamps = np.empty(count, np.int64), np.empty(count, np.int64)
    types = np.empty(count, np.int8)
    topics, partitions = np.empty(count, np.int32), np.empty(count, np.int32)
    keys, values = _Column(count, plan.size_bytes), _Column(count, plan.size_bytes)
    places = np.empty((count if include_headers else 0, 2), np.int64)
    progress = np.zeros(4, np.int64)
    fault = decode_columns(
        table, offsets, timestamps, types, topics, partitions,
        keys.offsets, keys.address, keys.validity, values.offsets, values.address, values.validity, places, progress,
    )  # fmt: skip
    done, rows, null_keys, null_values = progress.tolist()
    columns = [
        pa.DictionaryArray.from_arrays(
            _plain(pa.int32(), rows, topics), pa.array(plan.topics, pa.string()), safe=False
        ),
        _plain(pa.int32(), rows, partitions),
        _plain(pa.int64(), rows, offsets),
        _plain(_TIMESTAMP, rows, timestamps),
        _plain(pa.int8(), rows, types),
        keys.array(pa.binary(), rows, null_keys),
        values.array(pa.binary(), rows, null_values),
    ]
    if include_headers:
        columns.append(_headers(places, rows))
    schema = arrow_schema(include_headers=include_headers)
    return pa.RecordBatch.from_arrays(columns, schema=schema), done, fault


def _plain(kind: pa.DataType, rows: int, values: NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(values)], 0)


class _Column:
    """A binary column that a kernel fills."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self.offsets = np.empty(count + 1, np.int32)
        # Arrow's allocator keeps its pages. The system's allocator would return them and ask for them again.
        self.data = pa.allocate_buffer(size_bytes)
        self.address: int = self.data.address
        self.validity = np.zeros((count + 7) // 8, np.uint8)

    def array(self, kind: pa.DataType, rows: int, null_count: int) -> pa.Array:
        used = self.data.slice(0, int(self.offsets[rows]))
        validity = pa.py_buffer(self.validity) if null_count else None
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(self.offsets), used], null_count)


def _headers(places: NDArray[np.int64], rows: int) -> pa.Array:
    """:raises InvalidRecord: if they contradict themselves."""
    totals = np.zeros(3, np.int64)
    fault = count_headers(places, rows, totals)
    if fault:
        raise InvalidRecord(FAULTS[fault])
    count, key_bytes, value_bytes = totals.tolist()
    lists = np.empty(rows + 1, np.int32)
    keys, values = _Column(count, key_bytes), _Column(count, value_bytes)
    nulls = decode_headers(
        places, rows, lists, keys.offsets, keys.address, values.offsets, values.address, values.validity
    )
    entries = pa.StructArray.from_arrays(
        [_as_text(keys.array(pa.binary(), count, 0)), values.array(pa.binary(), count, nulls)],
        fields=list(HEADERS_TYPE.value_type),
    )
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, pa.py_buffer(lists)], 0, children=[entries])


def _as_text(keys: pa.Array) -> pa.Array:
    """Converts header keys to strings. Bytes that are not UTF-8 are replaced: Kafka accepts them, Arrow does not."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
