"""Maintains the rows of a table source: which rows appear and disappear when records arrive.

The rows of a table are the newest records of each key (``decoding.source_rows``). So the state has, for each key, the
newest record of each partition, also if that record removes the row: a record of another partition that arrives later
may be older.

The keys of records are hashed by CRC-32: Spark and Python compute the same, and keys with the same hash are only read
together.

A record without a key removes all rows of its topic that came before it in its partition: the source database has
truncated the table. That is rare, and reads the whole state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from headrace.pipeline.decoding.source_rows import REMOVED
from headrace.pipeline.touched.bag import COUNT, Bag
from headrace.pipeline.touched.engine import LeafChange
from headrace.pipeline.touched.row_codec import RowCodec
from headrace.pipeline.touched.state_table import StateTable

if TYPE_CHECKING:
    from pyspark.sql import Column
    from sqlalchemy import Connection

_NO_TIME = -(2**63)
#: The columns that say which record of a key is the newest.
_RECORD = ("_key", "_topic", "_partition", "_offset", "_timestamp", REMOVED)


class TableChange(NamedTuple):
    """
    :ivar state: the change of the kept records.
    :ivar rows: the change of the table's rows.
    """

    state: Bag
    rows: LeafChange


def table_columns(needed: Sequence[str]) -> list[str]:
    """The columns of the kept records, for a query that needs these columns."""
    return [*(name for name in needed if name not in _RECORD), *_RECORD]


def key_hashes(keys: pa.ChunkedArray) -> list[int]:
    """The hashes of the records' keys: CRC-32 in the upper half, as :func:`hashed_key` has it."""
    sums = np.fromiter((crc32(key) for key in keys.to_pylist()), np.uint64, len(keys))
    hashes: list[int] = (sums << np.uint64(32)).view(np.int64).tolist()
    return hashes


def hashed_key() -> Column:
    """The hash of the column ``_key``, computed by Spark."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.shiftleft(F.crc32("_key"), 32)


class TableSource:
    """:param schema: the columns of the kept records (``table_columns``)."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self._schema = schema
        self.codec = RowCodec(schema.with_metadata(None))
        self.state = StateTable(name, self.codec)

    def kept(self, records: pa.Table) -> Bag:
        """The records as a bag. They are the newest of their key and partition."""
        weights = np.ones(records.num_rows, dtype=np.int64)
        return Bag.of(self.codec, records.select(self._schema.names), key_hashes(records["_key"]), weights)

    def change(self, connection: Connection, records: pa.Table) -> TableChange:
        """Returns the change that these good records make."""
        truncations = _truncations(records)
        records = records.filter(pc.is_valid(records["_key"]))
        old = (
            self.state.read_all(connection)
            if truncations
            else self.state.read(connection, set(key_hashes(records["_key"])))
        )
        both = pa.concat_tables([old.rows.select(self._schema.names), records.select(self._schema.names)])
        places = _Newest(both)
        before, after = places.of(range(old.rows.num_rows)), places.of(places.since(truncations))
        newest = both.take(pa.array(sorted(after.kept), pa.int64()))
        new = self.kept(newest)
        negative = Bag(old.rows.set_column(old.rows.schema.get_field_index(COUNT), COUNT,
                       pa.array([-count for count in old.counts], pa.int64())), old.keys, old.identities)  # fmt: skip
        gone, came = sorted(before.shown - after.shown), sorted(after.shown - before.shown)
        return TableChange(negative.plus(new), LeafChange(both.take(pa.array(came, pa.int64())),
                                                          both.take(pa.array(gone, pa.int64()))))  # fmt: skip


def _truncations(records: pa.Table) -> dict[tuple[str, int], int]:
    """The offset of the last truncation of each topic and partition."""
    found = records.filter(pc.is_null(records["_key"])).select(["_topic", "_partition", "_offset"]).to_pylist()
    last: dict[tuple[str, int], int] = {}
    for topic, partition, offset in (row.values() for row in found):
        last[topic, partition] = max(offset, last.get((topic, partition), -1))
    return last


class _Places(NamedTuple):
    """
    :ivar kept: the newest record of each key and partition.
    :ivar shown: the records that are rows of the table.
    """

    kept: set[int]
    shown: set[int]


class _Newest:
    def __init__(self, records: pa.Table) -> None:
        columns = [records[name].to_pylist() for name in ("_key", "_topic", "_partition", "_offset")]
        self._of = list(zip(*columns, strict=True))
        # A record may have no timestamp. It is older than all others, as NULL is the smallest value in Spark.
        self._times = pc.fill_null(records["_timestamp"].cast(pa.int64()), _NO_TIME).to_pylist()
        self._removed = records[REMOVED].to_pylist()

    def since(self, truncations: Mapping[tuple[str, int], int]) -> list[int]:
        """The records that no truncation follows."""
        places = enumerate(self._of)
        return [at for at, (_, *place, offset) in places if offset > truncations.get(tuple(place), -1)]

    def of(self, places: Iterable[int]) -> _Places:
        """
        :param places: of the records to look at. A later one of the same key, partition and offset is the same record.
        """
        newest: dict[tuple[object, ...], int] = {}
        for at in places:
            key, topic, partition, offset = self._of[at]
            known = newest.get((key, topic, partition))
            if known is None or offset > self._of[known][3]:
                newest[key, topic, partition] = at
        by_key: dict[object, int] = {}
        for (key, *_), at in newest.items():
            known = by_key.get(key)
            if known is None or self._order(at) > self._order(known):
                by_key[key] = at
        return _Places(set(newest.values()), {at for at in by_key.values() if not self._removed[at]})

    def _order(self, at: int) -> tuple[object, ...]:
        return (self._times[at], self._of[at][1], self._of[at][2])
