"""The rows of one input in the serving database: the state of a keyed operator.

The state is the rows that a build has computed, which are stored in blocks and never change (``blocks``), and the sum
of all changes since then::

    k           the hash of the row's key; all rows with the same hash are read together
    h           the identity of the row (``row_codec``)
    n           how often the row occurs, in addition to the blocks; negative if rows of the blocks were removed
    c0, c1, ... its columns, encoded

Changed rows are stored in the order of k, so that the rows of a key are beside each other. Adding a row that is there
adds to its n. A removed row whose n becomes 0 is deleted.

If rows are dropped by their time (``keeping``), the last column is the time, and has an index. SQL cannot delete rows
inside of blocks, so such a state has none: a build adds its rows one by one, as micro-batches do.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.pipeline.serving.tables import create_table, index_name
from headrace.pipeline.touched.bag import COUNT, Bag
from headrace.pipeline.touched.blocks import BlockTable
from headrace.pipeline.touched.row_codec import BYTES, INTEGER, TEXT, RowCodec

_TYPES: dict[str, type[TypeEngine[Any]]] = {INTEGER: BigInteger, BYTES: LargeBinary, TEXT: Text}
_ARROW = {INTEGER: pa.int64(), BYTES: pa.binary(), TEXT: pa.string()}
_KEYS_PER_STATEMENT = 20_000


class StateTable:
    """:param has_times: whether the last column of the codec is the time of a row."""

    def __init__(self, name: str, codec: RowCodec, *, has_times: bool = False) -> None:
        self.name, self.codec, self.has_times = name, codec, has_times
        self.blocks = BlockTable(f"{name}_b", codec.schema)
        self._columns = [f"c{at}" for at in range(len(codec.storage))]
        typed = [Column(name, _TYPES[kind]()) for name, kind in zip(self._columns, codec.storage, strict=True)]
        self.table = Table(
            name,
            MetaData(),
            Column("k", BigInteger, nullable=False, autoincrement=False),
            Column("h", LargeBinary, nullable=False),
            Column("n", BigInteger, nullable=False),
            *typed,
            PrimaryKeyConstraint("k", "h"),
            sqlite_with_rowid=False,
            info={"summed": ("n",)},
        )

    def create(self, connection: Connection) -> None:
        create_table(connection, self.table)
        self.blocks.create(connection)
        if self.has_times:
            Index(index_name(self.name, "time"), self.table.c[self._columns[-1]]).create(connection)

    # ------------------------------------------------------------------------------------------------------- reading

    def read(self, connection: Connection, keys: Collection[int]) -> Bag:
        """The rows with these keys."""
        changed = [row for portion in _portions(sorted(keys)) for row in self._rows(connection, portion)]
        return self._built(*self.blocks.read(connection, keys)).plus(self._bag(changed))

    def read_all(self, connection: Connection) -> Bag:
        """All rows."""
        changed = connection.exec_driver_sql(f"{self._select} WHERE n <> 0").fetchall()
        return self._built(*self.blocks.read_all(connection)).plus(self._bag(changed))

    def _built(self, rows: pa.Table, keys: Sequence[int]) -> Bag:
        return Bag.of(self.codec, rows, keys, np.ones(len(keys), dtype=np.int64)) if keys else Bag.empty(self.codec)

    def _bag(self, found: Sequence[Row[Any]]) -> Bag:
        if not found:
            return Bag.empty(self.codec)
        k, h, n, *columns = zip(*found, strict=True)
        rows = self.codec.decode(columns) if columns else pa.table({COUNT: n}).select([])
        return Bag(rows.append_column(COUNT, pa.array(n, pa.int64())), list(k), [bytes(each) for each in h])

    @property
    def _select(self) -> str:
        names = ", ".join(map(quoted, ["k", "h", "n", *self._columns]))
        return f"SELECT {names} FROM {quoted(self.name)}"

    def _rows(self, connection: Connection, keys: Sequence[int]) -> Sequence[Row[Any]]:
        # A row that was removed from the blocks and came back occurs 0 times here.
        select = f"{self._select} WHERE n <> 0 AND k"
        if connection.dialect.name == "sqlite":
            found = connection.exec_driver_sql(
                f"{select} IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
            )
        else:
            found = connection.exec_driver_sql(f"{select} = ANY(%s::bigint[])", (list(keys),))
        return found.fetchall()

    # ------------------------------------------------------------------------------------------------------- writing

    def add(self, connection: Connection, change: Bag) -> None:
        """Adds a change: positive counts add rows, negative counts remove them."""
        if not change:
            return
        columns = self.codec.encode(change.rows)
        add_rows(connection, self.table, self._stored(change, columns))
        gone = [at for at, count in enumerate(change.counts) if count < 0]
        if gone:
            remove_zero(connection, self.table, [(change.keys[at], change.identities[at]) for at in gone])

    def drop_until(self, connection: Connection, time_us: int) -> None:
        """Deletes the rows whose time is not after this one, if rows have times."""
        if self.has_times:
            connection.execute(self.table.delete().where(self.table.c[self._columns[-1]] <= time_us))

    def _stored(self, change: Bag, columns: Sequence[Sequence[Any]]) -> pa.Table:
        arrays = [pa.array(change.keys, pa.int64()), pa.array(change.identities, pa.binary())]
        arrays.append(change.rows.column(COUNT).combine_chunks())
        arrays += [pa.array(each, _ARROW[kind]) for each, kind in zip(columns, self.codec.storage, strict=True)]
        return pa.table(arrays, names=["k", "h", "n", *self._columns])


def add_rows(connection: Connection, table: Table, rows: pa.Table) -> None:
    """Inserts rows; of rows that are there, adds to the columns that ``table.info["summed"]`` names."""
    if connection.dialect.name == "sqlite":
        from headrace.pipeline.serving.sqlite import loading as sqlite_loading

        sqlite_loading.insert(connection, table, rows, update=True)
    else:
        from headrace.pipeline.serving.postgresql import loading as postgresql_loading

        postgresql_loading.insert(connection, table, rows, update=True)


def remove_zero(connection: Connection, table: Table, keys: Sequence[tuple[Any, ...]]) -> None:
    """Deletes those of these rows that occur 0 times."""
    names = [column.name for column in table.primary_key]
    (count,) = table.info["summed"]
    where = sqlalchemy.and_(*(table.c[name] == sqlalchemy.bindparam(f"p{at}") for at, name in enumerate(names)))
    statement = table.delete().where(where, table.c[count] == 0)
    connection.execute(statement, [{f"p{at}": value for at, value in enumerate(key)} for key in keys])


def _portions(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    return (keys[start : start + _KEYS_PER_STATEMENT] for start in range(0, len(keys), _KEYS_PER_STATEMENT))
