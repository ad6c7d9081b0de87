"""The rows of a state as a build has computed them: blocks of rows that never change.

::

    bucket   the first bits of the hash of the rows' keys; all rows of a key are in the same bucket
    bits     how many bits: a build takes as many as give a block about ``ROWS_PER_BLOCK`` rows
    rows     an Arrow record batch with the columns k, c0, c1, ..., without its schema:
             4 bytes with its size (little endian), then the batch, compressed by zstd

A build of millions of rows writes thousands of blocks, and Spark's tasks make them from whole columns. What
micro-batches change is not written here, but row by row beside the blocks (``state_table``). A key is found in the
blocks of its bucket, so a micro-batch reads about ``ROWS_PER_BLOCK`` rows per touched key more than it needs. A block
of four columns of whole numbers has 1.3 kB, and is decoded in 34 microseconds.

A bucket whose keys have many rows has several blocks.

Tried and dropped: one row of the database per row of the state, which needs Python code per row to encode, hash and
insert it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import BigInteger, Column, Connection, Index, Integer, LargeBinary, MetaData, Table

from headrace.pipeline.serving.gathered_batches import gathered
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.pipeline.serving.tables import create_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The column with the hash of a row's key.
KEY = "_k"
ROWS_PER_BLOCK = 256
_MAX_ROWS_PER_BLOCK = 8_192
_MAX_BITS = 24
#: A task sorts at most this much at a time.
_PORTION_ROWS, _PORTION_BYTES = 1_000_000, 64 << 20
_ROWS_PER_TASK = 500_000
_BLOCKS_PER_BATCH = 256
_BUCKETS_PER_STATEMENT = 20_000
_CODEC = "zstd"


def bits_for(row_count: int) -> int:
    """How many bits of the hash say the bucket, for a state of about this many rows."""
    return min(_MAX_BITS, max(0, (row_count // ROWS_PER_BLOCK).bit_length()))


def block_schema(columns: pa.Schema) -> pa.Schema:
    """The schema of a block whose rows have these columns."""
    return pa.schema([(KEY, pa.int64()), *((f"c{at}", field.type) for at, field in enumerate(columns))])


def bucket_of(keys: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The buckets of these hashes."""
    if not bits:
        return np.zeros(len(keys), dtype=np.int64)
    return (keys.astype(np.int64).view(np.uint64) >> np.uint64(64 - bits)).astype(np.int64)


# -------------------------------------------------------------------------------------------------- in Spark's tasks


def in_buckets(frame: DataFrame, row_count: int, *, has_key: bool = True) -> DataFrame:
    """The rows of a frame, moved so that the rows of a bucket are in one task.

    :param frame: has the column ``KEY``.
    :param row_count: about how many rows the frame has.
    :param has_key: False if all rows have the same key; they stay where they are.
    """
    from pyspark.sql import functions as F  # noqa: N812

    tasks = -(-row_count // _ROWS_PER_TASK)
    if tasks <= 1:
        return frame.coalesce(1)
    if not has_key:
        return frame
    bits = bits_for(row_count)
    return frame.repartition(tasks, F.shiftrightunsigned(F.col(KEY), 64 - bits))


class BlockMaker:
    """Makes blocks of the rows of a task. Spark pickles it.

    :param columns: the columns of the rows; the given batches have them by place, and then ``KEY``.
    """

    def __init__(self, columns: pa.Schema, bits: int) -> None:
        self._schema, self._bits = block_schema(columns), bits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for portion in gathered(batches, _PORTION_ROWS, _PORTION_BYTES):
            yield from self._blocks(portion)

    def _blocks(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        *columns, keys = rows.columns
        table = pa.table([keys, *columns], names=self._schema.names).cast(self._schema)
        hashes = table.column(KEY).to_numpy().view(np.uint64)
        order = np.argsort(hashes, kind="stable")
        (sorted_rows,) = table.take(pa.array(order)).combine_chunks().to_batches()
        buckets = bucket_of(hashes[order].view(np.int64), self._bits)
        places = list(_slices(buckets))
        for at in range(0, len(places), _BLOCKS_PER_BATCH):
            some = places[at : at + _BLOCKS_PER_BATCH]
            blobs = [_encoded(sorted_rows.slice(first, end - first)) for first, end in some]
            yield pa.RecordBatch.from_arrays(
                [pa.array(buckets[[first for first, _ in some]], pa.int64()), pa.array(blobs, pa.binary())],
                names=["bucket", "rows"],
            )


def _slices(buckets: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """The first and the end of each block, over rows in the order of their buckets."""
    ends = [*(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
    first = 0
    for end in ends:
        for start in range(first, end, _MAX_ROWS_PER_BLOCK):
            yield start, min(end, start + _MAX_ROWS_PER_BLOCK)
        first = end


def _encoded(rows: pa.RecordBatch) -> bytes:
    whole = rows.serialize()
    compressed: bytes = pa.compress(whole, codec=_CODEC, asbytes=True)
    header: bytes = whole.size.to_bytes(4, "little")
    return header + compressed


def _decoded(block: bytes, schema: pa.Schema) -> pa.RecordBatch:
    size_bytes = int.from_bytes(block[:4], "little")
    return pa.ipc.read_record_batch(pa.decompress(memoryview(block)[4:], size_bytes, codec=_CODEC), schema)


# -------------------------------------------------------------------------------------------------------- the database


class BlockTable:
    """The table of blocks of one state.

    :param columns: the columns of the rows.
    """

    def __init__(self, name: str, columns: pa.Schema) -> None:
        self.name, self._columns = name, columns
        self._schema = block_schema(columns)
        #: None before the first look; -1 if there are no blocks.
        self._bits: int | None = None
        self.table = Table(
            name,
            MetaData(),
            Column("bucket", BigInteger, nullable=False),
            Column("bits", Integer, nullable=False),
            Column("rows", LargeBinary, nullable=False),
        )

    def create(self, connection: Connection) -> None:
        create_table(connection, self.table)
        Index(f"{self.name}i", self.table.c.bucket).create(connection)

    def add(self, connection: Connection, blocks: pa.Table, bits: int) -> None:
        """Adds what :class:`BlockMaker` has made."""
        rows = zip(blocks["bucket"].to_pylist(), [bits] * blocks.num_rows, blocks["rows"].to_pylist(), strict=True)
        names = f'{quoted(self.name)} ("bucket", "bits", "rows")'
        if connection.dialect.name == "sqlite":
            from headrace.pipeline.serving.sqlite.dialect import driver

            driver(connection).executemany(f"INSERT INTO {names} VALUES (?, ?, ?)", rows)
        else:
            from headrace.pipeline.serving.postgresql.loading import copy_values

            copy_values(connection, names, ("int8", "int4", "bytea"), rows)

    def read(self, connection: Connection, keys: Collection[int]) -> tuple[pa.Table, list[int]]:
        """The rows with these keys, which may repeat, and the keys of these rows."""
        bits = self._known_bits(connection)
        if bits < 0 or not keys:
            return self._rows(self._schema.empty_table())
        wanted = np.fromiter(keys, np.int64, len(keys))
        buckets = np.unique(bucket_of(wanted, bits)).tolist()
        found = [
            _decoded(block, self._schema)
            for start in range(0, len(buckets), _BUCKETS_PER_STATEMENT)
            for block in self._selected(connection, buckets[start : start + _BUCKETS_PER_STATEMENT])
        ]
        rows = pa.Table.from_batches(found, self._schema)
        places = np.flatnonzero(np.isin(rows.column(KEY).to_numpy(), wanted))
        return self._rows(rows.take(pa.array(places)))

    def read_all(self, connection: Connection) -> tuple[pa.Table, list[int]]:
        found = connection.exec_driver_sql(f'SELECT "rows" FROM {quoted(self.name)}')
        return self._rows(pa.Table.from_batches([_decoded(block, self._schema) for (block,) in found], self._schema))

    def _rows(self, blocks: pa.Table) -> tuple[pa.Table, list[int]]:
        keys: list[int] = blocks.column(KEY).to_pylist()
        return pa.table(blocks.columns[1:], schema=self._columns) if len(self._columns) else blocks.select([]), keys

    def _selected(self, connection: Connection, buckets: Sequence[int]) -> list[bytes]:
        select = f'SELECT "rows" FROM {quoted(self.name)} WHERE "bucket"'
        if connection.dialect.name == "sqlite":
            found = connection.exec_driver_sql(f"{select} IN (SELECT value FROM json_each(?))", (json.dumps(buckets),))
        else:
            found = connection.exec_driver_sql(f"{select} = ANY(%s::bigint[])", (buckets,))
        return [bytes(block) for (block,) in found]

    def _known_bits(self, connection: Connection) -> int:
        if self._bits is None:
            row = connection.exec_driver_sql(f'SELECT "bits" FROM {quoted(self.name)} LIMIT 1').first()
            self._bits = -1 if row is None else int(row[0])
        return self._bits
