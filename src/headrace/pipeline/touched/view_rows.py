"""Brings the rows of a view from a build's Spark job to the database, in the order of their identities.

The identities of rows are hashes, so the rows of a task are spread over the whole table. Inserted as they come, they
would touch every page of the table's index again and again. So each task cuts its rows into ranges of identities. The
driver gets all rows of a range together, adds up equal rows, and inserts the range at the end of those before.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.serving.gathered_batches import gathered
from headrace.pipeline.spark.packed_rows import fetched, kept_on_disk
from headrace.pipeline.touched.bag import COUNT
from headrace.pipeline.touched.row_codec import RowCodec, identities

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The column with the identity of a row, as in the table of the view.
IDENTITY = "_key"
_ROWS_PER_RANGE = 100_000
_MAX_BITS = 16
#: Identities are Python objects, so a task has few rows in memory at a time.
_PORTION_ROWS, _PORTION_BYTES = 200_000, 64 << 20
_HEX_DIGITS = 32
_BYTES_PER_FETCH = 32 << 20


def range_bits(row_count: int) -> int:
    """How many bits of the identity say the range, for a view of about this many rows."""
    return min(_MAX_BITS, (row_count // _ROWS_PER_RANGE).bit_length())


class RangeMaker:
    """Cuts the rows of a task into ranges. Spark pickles it.

    :param columns: the columns of the rows.
    """

    def __init__(self, columns: pa.Schema, bits: int) -> None:
        self._columns, self._bits = columns, bits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codec = RowCodec(self._columns)
        for portion in gathered(batches, _PORTION_ROWS, _PORTION_BYTES):
            rows = portion.select(self._columns.names).cast(self._columns)
            found = identities(codec.encode(rows), rows.num_rows)
            ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
            counted = rows.append_column(COUNT, ones).append_column(IDENTITY, _hex_texts(found))
            first = np.frombuffer(b"".join(each[:2] for each in found), dtype=">u2").astype(np.int64)
            yield from self._cut(counted, first >> (16 - self._bits))

    def _cut(self, rows: pa.Table, ranges: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[pa.RecordBatch]:
        order = np.argsort(ranges, kind="stable")
        in_order, sorted_rows = ranges[order], rows.take(pa.array(order))
        starts = [0, *(np.flatnonzero(np.diff(in_order)) + 1).tolist(), len(order)]
        for first, end in pairwise(starts):
            sink = pa.BufferOutputStream()
            part = summed(sorted_rows.slice(first, end - first)).combine_chunks()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_table(part)
            yield pa.RecordBatch.from_arrays(
                [pa.array(in_order[first : first + 1]), pa.array([sink.getvalue().to_pybytes()], pa.binary())],
                names=["range", "rows"],
            )


def _hex_texts(found: list[bytes]) -> pa.StringArray:
    ends = np.arange(0, (len(found) + 1) * _HEX_DIGITS, _HEX_DIGITS, dtype=np.int32)
    texts = hexlify(b"".join(found))
    return pa.StringArray.from_buffers(len(found), pa.py_buffer(ends), pa.py_buffer(texts))


def summed(rows: pa.Table) -> pa.Table:
    """The rows with their counts added up, one row per identity."""
    if pc.count_distinct(rows[IDENTITY]).as_py() == rows.num_rows:
        return rows
    numbered = rows.append_column("_at", pa.array(np.arange(rows.num_rows)))
    sums = numbered.group_by(IDENTITY).aggregate([("_at", "min"), (COUNT, "sum")])
    return rows.take(sums["_at_min"]).set_column(rows.schema.get_field_index(COUNT), COUNT, sums[f"{COUNT}_sum"])


class ViewRows:
    """The rows of a view, computed by ``start`` and kept by Spark until ``close``.

    :param row_count: about how many rows there are.
    """

    def __init__(self, frame: DataFrame, columns: pa.Schema, row_count: int) -> None:
        bits = range_bits(row_count)
        self._ranges, self._size_bytes = 1 << bits, 0
        self._parts = frame.mapInArrow(RangeMaker(columns, bits), "range BIGINT, rows BINARY")

    def start(self) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        self._parts = kept_on_disk(self._parts)
        found = self._parts.agg(F.sum(F.length("rows"))).first()
        assert found is not None
        self._size_bytes = found[0] or 0

    def tables(self) -> Iterator[pa.Table]:
        """The rows, some at a time, with ``COUNT`` and ``IDENTITY``. No identity is there twice."""
        for _, of_range in groupby(fetched(self.in_order()), key=lambda part: part.range):
            yield summed(pa.concat_tables([_unpacked(part.rows) for part in of_range]))

    def in_order(self) -> DataFrame:
        """The parts in the order of their ranges. A partition is fetched as a whole, so it has few ranges."""
        if self._ranges == 1:
            return self._parts
        partitions = min(self._ranges, -(-self._size_bytes // _BYTES_PER_FETCH))
        return self._parts.repartitionByRange(max(1, partitions), "range").sortWithinPartitions("range")

    def close(self) -> None:
        self._parts.unpersist()


def _unpacked(part: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(part)) as reader:
        return reader.read_all()
