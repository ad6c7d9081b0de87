"""The rows of a DataFrame in this process, some at a time, as Arrow tables: however many there are.

``toArrow`` brings everything at once, ``toLocalIterator`` an object a row. Here each task packs its rows into chunks,
one binary value each, so that a few large rows come over; they are computed by all tasks at once and kept by Spark
until they were fetched, on its disks if need be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CHUNK_ROWS = 50_000
_CHUNK_BYTES = 8 << 20
#: A partition is fetched as a whole, so it must not have too many chunks.
_CHUNKS_A_PARTITION = 16


@contextmanager
def packed(frame: DataFrame, schema: pa.Schema | None = None) -> Iterator[Iterator[pa.Table]]:
    """Everything is computed on entry: what fails fails there, and what was observed is known from then on.

    :param schema: of the tables, if Spark's own types are not what is wanted.
    """
    chunks = frame.mapInArrow(pack, "chunk BINARY").persist()
    try:
        count = chunks.count()
        spread = -(-count // _CHUNKS_A_PARTITION)
        wide = chunks.repartition(spread) if spread > 1 and spread > chunks.rdd.getNumPartitions() else chunks
        yield (_unpacked(row.chunk, schema) for row in wide.toLocalIterator(prefetchPartitions=True))
    finally:
        chunks.unpersist()


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task of Spark."""
    gathered: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        rows, size_bytes = rows + batch.num_rows, size_bytes + batch.nbytes
        if rows >= _CHUNK_ROWS or size_bytes >= _CHUNK_BYTES:
            yield _chunk(gathered)
            gathered, rows, size_bytes = [], 0, 0
    if gathered:
        yield _chunk(gathered)


def _chunk(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["chunk"])


def _unpacked(chunk: bytes | bytearray, schema: pa.Schema | None) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(chunk)) as reader:
        table = reader.read_all()
    return table if schema is None else table.cast(schema)
