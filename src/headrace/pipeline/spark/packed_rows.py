"""Brings the rows of a DataFrame to this process as Arrow tables, some at a time, however many there are.

``toArrow`` brings all rows at once. ``toLocalIterator`` brings one Python object per row. Here each task packs its rows
into chunks of one binary value each, so that only a few large rows are sent. All tasks compute at once, and Spark keeps
the chunks on disk until they are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from headrace.pipeline.serving.gathered_batches import gathered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

Prepare = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_CHUNK_ROWS = 50_000
_CHUNK_BYTES = 8 << 20
#: A partition is fetched as a whole, so it must have few chunks.
_CHUNKS_PER_PARTITION = 4


class Packed:
    """The rows of a frame, computed by ``start`` and kept by Spark until ``close``.

    :param prepare: changes the rows of a task before they are packed. Spark pickles it.
    :param schema: the schema of the tables, if it is not that of Spark.
    """

    def __init__(self, frame: DataFrame, prepare: Prepare | None = None, schema: pa.Schema | None = None) -> None:
        self._chunks = frame.mapInArrow(pack if prepare is None else _Prepared(prepare), "chunk BINARY")
        self._schema = schema
        self._count = 0

    def start(self) -> None:
        """Computes the frame. Errors are raised here, and observed metrics are known afterwards."""
        self._chunks = kept_on_disk(self._chunks)
        self._count = self._chunks.count()

    def partitions(self) -> int:
        """Into how many partitions the chunks are spread before they are fetched."""
        return max(self._chunks.rdd.getNumPartitions(), -(-self._count // _CHUNKS_PER_PARTITION))

    def tables(self) -> Iterator[pa.Table]:
        partitions = self.partitions()
        is_spread = partitions > self._chunks.rdd.getNumPartitions()
        chunks = self._chunks.repartition(partitions) if is_spread else self._chunks
        return (_unpacked(row.chunk, self._schema) for row in fetched(chunks))

    def close(self) -> None:
        self._chunks.unpersist()


def fetched(frame: DataFrame) -> Iterator[Row]:
    """The rows of a frame, one partition at a time. Spark computes the next partition meanwhile.

    ``DataFrame.toLocalIterator`` would run its jobs when its query has ended. Spark 4.3 then keeps their results until
    Java ends, in ``DAGScheduler.activeQueryToJobs``. The jobs of an RDD belong to no query.
    """
    return iter(frame.rdd.toLocalIterator(prefetchPartitions=True))


def kept_on_disk(chunks: DataFrame) -> DataFrame:
    """The frame, which Spark keeps on disk once it is computed.

    In memory, values of megabytes leave gaps between them: Java had no memory left when half of it was free.
    """
    from pyspark import StorageLevel

    return chunks.persist(StorageLevel.DISK_ONLY)


@contextmanager
def packed(frame: DataFrame, schema: pa.Schema | None = None) -> Iterator[Iterator[pa.Table]]:
    """Computes the frame on entry, and yields its rows. Errors are raised on entry; observed metrics are known then."""
    made = Packed(frame, schema=schema)
    try:
        made.start()
        yield made.tables()
    finally:
        made.close()


class _Prepared:
    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack(self._prepare(batches))


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs rows into chunks. Runs in a Spark task."""
    for table in gathered(batches, _CHUNK_ROWS, _CHUNK_BYTES):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["chunk"])


def _unpacked(chunk: bytes | bytearray, schema: pa.Schema | None) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(chunk)) as reader:
        table = reader.read_all()
    return table if schema is None else table.cast(schema)
