"""Tables to record batches, by the kernels: no Python object a row, and one copy of each byte.

A table is whatever Arrow takes by its PyCapsule interface: pyarrow's Table and RecordBatch, pandas' and polars' frames.
The columns that count, all others are refused, so that nothing is left behind in silence::

    value      binary or string (large, views, fixed size, dictionaries too); null is a tombstone
    key        the same; may be absent
    partition  integer; null: chosen as without
    timestamp  a timestamp of any unit, or integer milliseconds; null: now
    headers    list<struct<key, value>> or map<key, value>

Rows with a key go where murmur2 sends them, as from any client. Those without are given to the topic's partitions in
turn, a batch's worth at a time.

A big table is cut in steps (``TableEncoder.steps``), so that no more than one step is held encoded before the
producer's memory takes it. Nothing here touches the loop: steps may be encoded on any thread.
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
#: Lengths, deltas, the count of headers and the byte of attributes: at most, beside the data.
_RECORD_OVERHEAD_BYTES = 40
_HEADER_OVERHEAD_BYTES = 10
_BATCH_OVERHEAD_BYTES = 61
_STEP_BYTES = 4 << 20
_LOOK_ROWS = 1 << 16
_MOST_BYTES = 2**31 - 1
_NO_BYTES = np.empty(0, np.uint8)
_NO_NUMBERS = np.empty(0, np.int64)


def as_arrow_table(table: object) -> pa.Table:
    """:raises TypeError: if it is not a table, by its own word."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
        raise TypeError(f"a {type(table).__name__} is not a table: give one of pyarrow, pandas or polars")
    return pa.table(table)


class _Bytes(NamedTuple):
    """A column of binaries. Offsets of none: all null."""

    #: As Arrow has them, in 32 or 64 bits; for the kernels, see :meth:`of`.
    offsets: "NDArray[np.int64]"
    address: int
    is_valid: "NDArray[np.uint8]"
    alive: object = None

    def of(self, start: int, end: int) -> "_Bytes":
        """Some of its rows in the terms of the kernels; offsets stay those of the whole data."""
        if not len(self.offsets):
            return self
        is_valid = self.is_valid[start:end] if len(self.is_valid) else self.is_valid
        # A copy: Arrow's memory is not to be written, which to a kernel is another type.
        return self._replace(offsets=self.offsets[start : end + 1].astype(np.int64), is_valid=is_valid)

    def bytes_before(self, row: int) -> int:
        return int(self.offsets[row]) - int(self.offsets[0]) if len(self.offsets) else 0


_ALL_NULL = _Bytes(_NO_NUMBERS, 0, _NO_BYTES)


class _Headers(NamedTuple):
    lists: "NDArray[np.int64]"
    names: _Bytes
    contents: _Bytes


class TableEncoder:
    """A table on its way to a topic.

    :param available: the partitions that rows without a key go to; all, if there are none.
    :param run_turn: where in ``available`` to begin, so that small tables do not all go to the first.
    :raises ValueError: naming the column, if there is no value, or one is of a type that it cannot be.
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
        """The most that one record may take."""
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
        """About what all of them take."""
        return self._bytes_before(self.row_count)

    def _bytes_before(self, row: int) -> int:
        """What the rows before this one take, with the usual overhead."""
        size_bytes = row * USUAL_OVERHEAD_BYTES + self._keys.bytes_before(row) + self._values.bytes_before(row)
        headers = self._headers
        if len(headers.lists):
            first, last = int(headers.lists[0]), int(headers.lists[row])
            size_bytes += (last - first) * _HEADER_OVERHEAD_BYTES
            for column in (headers.names, headers.contents):
                size_bytes += column.bytes_before(last) - column.bytes_before(first)
        return size_bytes

    def steps(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows to encode together, of as many bytes as full batches have."""
        step_bytes = max(1, self._step_bytes // self._limit_bytes) * self._limit_bytes
        rows, start = range(self.row_count + 1), 0
        while start < self.row_count:
            until_bytes = self._bytes_before(start) + step_bytes
            end = max(start + 1, bisect_right(rows, until_bytes, lo=start, key=self._bytes_before) - 1)
            yield start, end
            start = end

    def encode(self, start: int, end: int) -> list[EncodedBatch]:
        """The batches of some rows, partition by partition."""
        keys, values = self._keys.of(start, end), self._values.of(start, end)
        partitions = self._partition_rows(start, end, keys, values)
        order = _NO_NUMBERS
        if not self._is_one_partition:
            order = np.empty(end - start, np.int64)
            if order_rows(partitions, self._partition_count, order):
                raise ValueError(f"a partition in the table is not one of 0 to {self._partition_count - 1}")
        headers = self._headers
        lists = headers.lists[start : end + 1] if len(headers.lists) else _NO_NUMBERS
        row_bytes = self._bytes_before(end) - self._bytes_before(start)
        row_bytes += (end - start) * (_RECORD_OVERHEAD_BYTES - USUAL_OVERHEAD_BYTES)
        # Two neighbours in a partition are together larger than the limit.
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
        assert count >= 0, "the bound of a batch is no bound"
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
            # A row that says none (-1) has only that one to go to.
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
                raise ValueError("a partition was given, and the table has a column of that name: which one counts?")
            if not 0 <= partition < self._partition_count:
                raise ValueError(f"partition {partition} is not one of 0 to {self._partition_count - 1}")
            return np.full(self.row_count, partition, np.int32)
        if column is None:
            return np.empty(0, np.int32)
        if not pa.types.is_integer(column.type):
            raise ValueError(f"the column partition is of {column.type}, not integer")
        given = column.cast(pa.int64())
        numbers = given.fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = (numbers >= self._partition_count) | ((numbers < 0) & given.is_valid().to_numpy(zero_copy_only=False))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"row {row} is for partition {numbers[row]}, not one of 0 to {self._partition_count - 1}")
        small: NDArray[np.int32] = numbers.astype(np.int32)
        return small


def table_to_batches(table: object, **options: int) -> list[EncodedBatch]:
    """All of a table at once; options as of :class:`TableEncoder`."""
    encoder = TableEncoder(table, **options)  # type: ignore[arg-type]
    return [batch for start, end in encoder.steps() for batch in encoder.encode(start, end)]


# ---------------------------------------------------------------------------------------------- Arrow in kernel terms


def _check_columns(table: pa.Table) -> None:
    names = table.column_names
    if len(set(names)) < len(names):
        raise ValueError(f"the table has a column twice: {', '.join(names)}")
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        hint = "; drop what poll_arrow told" if set(unknown) <= _SPARK_ALIASES else ""
        raise ValueError(f"columns that no record has: {', '.join(unknown)} (of {', '.join(_COLUMNS)}){hint}")
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
            raise ValueError(f"the column {name} is of {kind}, not binary or string")
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
        # A null may have bytes; they do not count.
    return _Bytes(numbers, data.address if data is not None else 0, is_valid, column)


def _is_plain(kind: pa.DataType) -> bool:
    of = pa.types
    return bool(of.is_binary(kind) or of.is_string(kind) or of.is_large_binary(kind) or of.is_large_string(kind))


def _is_castable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(kind) or kind in (pa.binary_view(), pa.string_view()))


def _timestamps(column: pa.Array | None, now_ms: int) -> "NDArray[np.int64]":
    """One for all rows where there is no column."""
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
        raise ValueError(f"the column timestamp is of {column.type}, not a timestamp or integer milliseconds")
    plain = numbers.fill_null(now_ms) if numbers.null_count else numbers
    # A copy: Arrow's memory is not to be written, which to a kernel is another type.
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
        raise ValueError(f"the column headers is of {kind}, not list<struct<key, value>>")
    if column.null_count:
        column = pc.if_else(column.is_valid(), column, pa.scalar([], kind))
    entries = column.values
    if entries.null_count or entries.field(0).null_count:
        raise ValueError("a header in the column headers is null, or has no key")
    lists = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    names, contents = (_binaries(f"headers.{place}", entries.field(place)) for place in range(2))
    # They are few, and rows do not begin where they do: all of them, in the terms of the kernels.
    return _Headers(lists, names.of(0, len(entries)), contents.of(0, len(entries)))
