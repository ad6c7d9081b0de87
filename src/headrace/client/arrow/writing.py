"""Encodes tables to record batches, without a Python object per row and with one copy of each byte.

A table is any object with Arrow's PyCapsule interface: pyarrow's Table and RecordBatch, frames of pandas and polars. It
may have the following columns. Any other column is an error, so that no data is lost silently::

    value      binary or string (also large, views, fixed size, dictionaries); null is a tombstone
    key        the same types; optional
    partition  integer; optional; null: chosen by key, or in turn
    timestamp  a timestamp of any unit, or integer milliseconds; optional; null: now
    headers    list<struct<key, value>> or map<key, value>; optional

The murmur2 hash of the key chooses the partition, as in any client. Rows without a key go to the topic's partitions in
turn, about one batch at a time.

A large table is encoded in steps (``TableEncoder.steps``), so that at most one step is held outside of the producer's
buffer. Steps may be encoded on any thread.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.client.encoded_batch import EncodedBatch
from headrace.client.kernels.encode import (
    DESCRIPTION_FIELDS,
    USUAL_OVERHEAD_BYTES,
    encode_batches,
    hash_rows,
    order_rows,
    spread_rows,
)
from headrace.protocol.compression import compress
from headrace.protocol.records import Codec

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TableEncoder", "as_arrow_table", "table_to_batches"]

_COLUMNS = ("value", "key", "partition", "timestamp", "headers")
_SPARK_ALIASES = {"topic", "offset", "timestamp_type"}
#: The most bytes of a record in addition to its data: lengths, deltas, the count of headers, the attributes.
_RECORD_OVERHEAD_BYTES = 40
_HEADER_OVERHEAD_BYTES = 10
_BATCH_OVERHEAD_BYTES = 61
_STEP_BYTES = 4 << 20
_LOOK_ROWS = 1 << 16
_MOST_BYTES = 2**31 - 1
_NO_BYTES = np.empty(0, np.uint8)
_NO_NUMBERS = np.empty(0, np.int64)


def as_arrow_table(table: object) -> pa.Table:
    """Converts an object to a pyarrow table.

    :raises TypeError: if the object has no PyCapsule interface.
    """
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise TypeError(f"a {type(table).__name__} is not a table: pass a table of pyarrow, pandas or polars")
    return pa.table(table)


class _Bytes(NamedTuple):
    """A binary column. Without offsets, all rows are null."""

    #: In 32 or 64 bits, as Arrow has them. :meth:`of` converts them for the kernels.
    offsets: "NDArray[np.int64]"
    address: int
    is_valid: "NDArray[np.uint8]"
    alive: object = None

    def of(self, start: int, end: int) -> "_Bytes":
        """Returns some rows in the form that the kernels take. Offsets still refer to the whole data."""
        if not len(self.offsets):
            return self
        is_valid = self.is_valid[start:end] if len(self.is_valid) else self.is_valid
        # A copy, because Arrow's memory is read-only, and a kernel takes only writable arrays.
        return self._replace(offsets=self.offsets[start : end + 1].astype(np.int64), is_valid=is_valid)

    def bytes_before(self, row: int) -> int:
        return int(self.offsets[row]) - int(self.offsets[0]) if len(self.offsets) else 0


_ALL_NULL = _Bytes(_NO_NUMBERS, 0, _NO_BYTES)


class _Headers(NamedTuple):
    """The headers of all rows."""

    lists: "NDArray[np.int64]"
    names: _Bytes
    contents: _Bytes


class TableEncoder:
    """Encodes one table for one topic.

    :param available: the partitions for rows without a key. If it is empty, all partitions.
    :param run_turn: the index in ``available`` to begin with, so that small tables do not all go to the first one.
    :raises ValueError: if the column value is missing, or a column has a wrong type.
    """

    def __init__(
        self,
        table: object,
        *,
        partition_count: int,
        available: Sequence[int] = (),
        batch_size_bytes: int = 16384,
        now_ms: int = -1,
        partition: int | None = None,
        run_turn: int = 0,
        step_bytes: int = _STEP_BYTES,
        codec: Codec = Codec.none,
        compression_level: int | None = None,
    ) -> None:
        arrow_table = as_arrow_table(table)
        _check_columns(arrow_table)
        self.row_count: int = arrow_table.num_rows
        self._partition_count = partition_count
        self._available = np.array(list(available) or range(partition_count), np.int32)
        self._limit_bytes = max(1, batch_size_bytes)
        self._step_bytes = step_bytes
        self._turn = run_turn
        self._codec = codec
        self._compression_level = compression_level
        columns = {name: _whole(arrow_table.column(name)) for name in arrow_table.column_names}
        self._values = _binaries("value", columns.get("value"))
        self._keys = _binaries("key", columns.get("key"))
        self._headers = _header_columns(columns.get("headers"))
        self._timestamps = _timestamps(columns.get("timestamp"), now_ms)
        self._partitions = self._given_partitions(columns.get("partition"), partition)
        self._is_one_partition = partition_count == 1 or partition is not None

    @property
    def largest_row_bytes(self) -> int:
        """The most bytes that one record may take."""
        largest = 0
        for start in range(0, self.row_count, _LOOK_ROWS):
            end = min(start + _LOOK_ROWS, self.row_count)
            sizes = np.zeros(end - start, np.int64)
            for column in (self._keys, self._values):
                if len(column.offsets):
                    sizes += np.diff(column.offsets[start : end + 1])
            headers = self._headers
            if len(headers.lists):
                lists = headers.lists[start : end + 1]
                sizes += np.diff(lists) * _HEADER_OVERHEAD_BYTES
                for column in (headers.names, headers.contents):
                    if len(column.offsets):
                        sizes += np.diff(column.offsets[lists])
            largest = max(largest, int(sizes.max()) + _RECORD_OVERHEAD_BYTES)
        return largest

    @property
    def size_bytes(self) -> int:
        """The approximate size of all records."""
        return self._bytes_before(self.row_count)

    def _bytes_before(self, row: int) -> int:
        """Returns the approximate size of the rows before this one."""
        size_bytes = row * USUAL_OVERHEAD_BYTES + self._keys.bytes_before(row) + self._values.bytes_before(row)
        headers = self._headers
        if len(headers.lists):
            first, last = int(headers.lists[0]), int(headers.lists[row])
            size_bytes += (last - first) * _HEADER_OVERHEAD_BYTES
            for column in (headers.names, headers.contents):
                size_bytes += column.bytes_before(last) - column.bytes_before(first)
        return size_bytes

    def steps(self) -> Iterator[tuple[int, int]]:
        """Returns the ranges of rows to encode together. Each has about as many bytes as full batches have."""
        step_bytes = max(1, self._step_bytes // self._limit_bytes) * self._limit_bytes
        rows, start = range(self.row_count + 1), 0
        while start < self.row_count:
            until_bytes = self._bytes_before(start) + step_bytes
            end = max(start + 1, bisect_right(rows, until_bytes, lo=start, key=self._bytes_before) - 1)
            yield start, end
            start = end

    def encode(self, start: int, end: int) -> list[EncodedBatch]:
        """Encodes some rows, partition by partition."""
        keys, values = self._keys.of(start, end), self._values.of(start, end)
        partitions = self._partition_rows(start, end, keys, values)
        order = _NO_NUMBERS
        if not self._is_one_partition:
            order = np.empty(end - start, np.int64)
            if order_rows(partitions, self._partition_count, order):
                raise ValueError(f"the column partition has a number that is not 0 to {self._partition_count - 1}")
        headers = self._headers
        lists = headers.lists[start : end + 1] if len(headers.lists) else _NO_NUMBERS
        row_bytes = self._bytes_before(end) - self._bytes_before(start)
        row_bytes += (end - start) * (_RECORD_OVERHEAD_BYTES - USUAL_OVERHEAD_BYTES)
        # Two consecutive batches of a partition are together larger than the limit.
        room_bytes = max(1, self._limit_bytes - _BATCH_OVERHEAD_BYTES)
        most_batches = min(end - start, self._partition_count + 1 + 2 * row_bytes // room_bytes)
        output_bytes = row_bytes + _BATCH_OVERHEAD_BYTES * most_batches
        output = np.empty(output_bytes, np.uint8)
        described = np.empty((most_batches, len(DESCRIPTION_FIELDS)), np.int64)
        count = encode_batches(
            order, partitions, self._timestamps[start:end] if len(self._timestamps) > 1 else self._timestamps,
            keys.offsets, keys.address, keys.is_valid, values.offsets, values.address, values.is_valid,
            lists, headers.names.offsets, headers.names.address,
            headers.contents.offsets, headers.contents.address, headers.contents.is_valid,
            self._limit_bytes, output.ctypes.data, output_bytes, described,
        )  # fmt: skip
        assert count >= 0, "the computed size of a batch is too small"
        data = output.data
        return [
            EncodedBatch(partition, data[begin:stop], records, base_ms, newest_ms, self._compressed(data[begin:stop]))
            for partition, begin, stop, records, base_ms, newest_ms in described[:count].tolist()
        ]

    def _compressed(self, data: memoryview) -> bytes | None:
        if self._codec is Codec.none:
            return None
        return compress(self._codec, data[_BATCH_OVERHEAD_BYTES:], self._compression_level)

    def _partition_rows(self, start: int, end: int, keys: _Bytes, values: _Bytes) -> "NDArray[np.int32]":
        if self._is_one_partition and len(self._partitions):
            # A row without a partition (-1) can only go to this one.
            return np.maximum(self._partitions[start:end], 0)
        partitions = np.empty(end - start, np.int32)
        missing = hash_rows(keys.offsets, keys.address, keys.is_valid, self._partition_count, partitions)
        if len(self._partitions):
            given = self._partitions[start:end]
            partitions = np.where(given >= 0, given, partitions)
        if missing:
            self._turn = spread_rows(values.offsets, self._limit_bytes, self._available, self._turn, partitions)
        return partitions

    def _given_partitions(self, column: pa.Array | None, partition: int | None) -> "NDArray[np.int32]":
        if partition is not None:
            if column is not None:
                raise ValueError("both the argument partition and a column partition are given; use only one of them")
            if not 0 <= partition < self._partition_count:
                raise ValueError(f"there is no partition {partition}, only 0 to {self._partition_count - 1}")
            return np.full(self.row_count, partition, np.int32)
        if column is None:
            return np.empty(0, np.int32)
        if not pa.types.is_integer(column.type):
            raise ValueError(f"the column partition has the type {column.type}, but must be integer")
        given = column.cast(pa.int64())
        numbers = given.fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = (numbers >= self._partition_count) | ((numbers < 0) & given.is_valid().to_numpy(zero_copy_only=False))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(
                f"row {row} has the partition {numbers[row]}, but there are only 0 to {self._partition_count - 1}"
            )
        small: NDArray[np.int32] = numbers.astype(np.int32)
        return small


def table_to_batches(table: object, **options: int) -> list[EncodedBatch]:
    """Encodes a whole table at once, with the options of :class:`TableEncoder`."""
    encoder = TableEncoder(table, **options)  # type: ignore[arg-type]
    return [batch for start, end in encoder.steps() for batch in encoder.encode(start, end)]


# ---------------------------------------------------------------------------------------------- columns for kernels


def _check_columns(table: pa.Table) -> None:
    names = table.column_names
    if len(set(names)) < len(names):
        raise ValueError(f"the table has two columns with the same name: {', '.join(names)}")
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        hint = "; drop the columns that poll_arrow added" if set(unknown) <= _SPARK_ALIASES else ""
        raise ValueError(f"unknown columns: {', '.join(unknown)} (known are {', '.join(_COLUMNS)}){hint}")
    if "value" not in names:
        raise ValueError(f"the table has no column value, only {', '.join(names) or 'none'}")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes > _MOST_BYTES and (pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        column = column.cast(pa.large_binary())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _binaries(name: str, column: pa.Array | None) -> _Bytes:
    if column is None or pa.types.is_null(column.type):
        return _ALL_NULL
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if not _is_plain(kind):
        if not _is_castable(kind):
            raise ValueError(f"the column {name} has the type {kind}, but must be binary or string")
        column = column.cast(pa.large_binary())
        kind = column.type
    validity, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else np.int32
    first, count = column.offset, len(column)
    if not count:
        return _ALL_NULL
    numbers: NDArray[Any] = np.frombuffer(offsets, width, count + 1, first * np.dtype(width).itemsize)
    is_valid = _NO_BYTES
    if validity is not None and column.null_count:
        is_valid = column.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
        # A null may have bytes; they are ignored.
    return _Bytes(numbers, data.address if data is not None else 0, is_valid, column)


def _is_plain(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_binary(kind) or of.is_string(kind) or of.is_large_binary(kind) or of.is_large_string(kind))


def _is_castable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) or kind in (pa.binary_view(), pa.string_view()))


def _timestamps(column: pa.Array | None, now_ms: int) -> "NDArray[np.int64]":
    """Returns the timestamps of all rows; only one if there is no column."""
    if column is None or not len(column):
        return np.array([now_ms], np.int64)
    if pa.types.is_timestamp(column.type):
        numbers = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz), safe=False)
        numbers = numbers.cast(pa.int64())
    elif pa.types.is_integer(column.type):
        numbers = column.cast(pa.int64())
    elif pa.types.is_null(column.type):
        return np.array([now_ms], np.int64)
    else:
        raise ValueError(
            f"the column timestamp has the type {column.type}, but must be a timestamp or integer milliseconds"
        )
    plain = numbers.fill_null(now_ms) if numbers.null_count else numbers
    # A copy, because Arrow's memory is read-only, and a kernel takes only writable arrays.
    result: NDArray[np.int64] = np.array(plain.to_numpy(zero_copy_only=False), np.int64)
    return result


def _header_columns(column: pa.Array | None) -> _Headers:
    if column is None or pa.types.is_null(column.type) or not len(column):
        return _Headers(_NO_NUMBERS, _ALL_NULL, _ALL_NULL)
    kind = column.type
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise ValueError(f"the column headers has the type {kind}, but must be list<struct<key, value>>")
    if column.null_count:
        column = pc.if_else(column.is_valid(), column, pa.scalar([], kind))
    entries = column.values
    if entries.null_count or entries.field(0).null_count:
        raise ValueError("a header in the column headers is null, or has no key")
    lists = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    names, contents = (_binaries(f"headers.{place}", entries.field(place)) for place in range(2))
    # Headers are few, and their offsets differ from those of the rows. So all of them are converted for the kernels.
    return _Headers(lists, names.of(0, len(entries)), contents.of(0, len(entries)))
