"""The tables of a version that is maintained by touched keys, and the SELECT through which readers see its rows.

::

    <view>__v<N>_b<M>          the rows of build M: output columns, sort keys, _copies, and _key: the row's identity,
                               or the values of its key columns if the view's file has ``key``
                               and with [keep] _keep_us, the row's time
    <view>__v<N>_b<M>_s<I>     the rows of input I of a keyed operator                                (``state_table``)
    <view>__v<N>_b<M>_t<I>     the newest records of table I of the sources                           (``table_source``)
    <view>__v<N>_b<M>_c        the largest times of earlier events, for [keep] and watermarks         (``event_times``)

A build computes all of them from the start. The next build has tables of its own, and replaces the last one in one
transaction. A row that occurs several times is stored once; the SELECT shows it as often as it occurs. With ``key``,
two rows with equal keys are an error: the transaction is rolled back, and readers keep the last answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection, Index, Table

from headrace.pipeline.query.plan import SortBy
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DuplicateKey
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.pipeline.serving.tables import canonical_keys, create_table, data_table, index_name
from headrace.pipeline.touched.bag import COUNT, Bag
from headrace.pipeline.touched.state_table import remove_zero
from headrace.pipeline.touched.top import Shown
from headrace.pipeline.touched.view_rows import IDENTITY

COPIES = "_copies"
#: The time of a row in microseconds, if rows are dropped by it (``keeping``).
TIME = "_keep_us"


def build_name(view: str, version: int, build: int) -> str:
    return f"{view}__v{version}_b{build}"


class ViewTable:
    """The rows of one build.

    :param schema: the columns that readers see, the sort keys that are not among them, and ``TIME`` if rows have it.
    :param key: the columns that identify a row, if the view's file says so.
    """

    def __init__(self, name: str, shown: Shown, schema: pa.Schema, database: Database, key: Sequence[str] = ()) -> None:
        self.name, self._shown, self._schema, self._database = name, shown, schema, database
        self._key = tuple(key)

    @cached_property
    def table(self) -> Table:
        made = data_table(self.name, self._schema.append(pa.field(COPIES, pa.int64())), ())
        made.info["summed"] = (COPIES,)
        return made

    def create(self, connection: Connection) -> None:
        create_table(connection, self.table)
        # Nearly always empty: the rows that the second part of ``select_sql`` reads.
        several = self.table.c[COPIES] > 1
        name = index_name(self.name, "copies")
        Index(name, self.table.c[COPIES], sqlite_where=several, postgresql_where=several).create(connection)
        if TIME in self._schema.names:
            Index(index_name(self.name, "time"), self.table.c[TIME]).create(connection)
        self._create_key_index(connection)

    def _create_key_index(self, connection: Connection) -> None:
        """For readers that look rows up by their key."""
        columns = [self.table.c[column] for column in self._key]
        if self._database.is_sqlite:
            indexes = [Index(index_name(self.name, "key"), *columns)] if columns else []
        else:  # a B-tree of PostgreSQL refuses values of more than 2.7 kB; a hash index has one column
            indexes = [
                Index(index_name(self.name, f"key{at}"), column, postgresql_using="hash")
                for at, column in enumerate(columns)
            ]
        for index in indexes:
            index.create(connection)

    def add(self, connection: Connection, change: Bag) -> None:
        """
        :raises DuplicateKey: if two rows have the same key. The transaction has to be rolled back then.
        """
        if not change:
            return
        if not self._key:
            self._add(connection, self._rows(change))
            return
        rows = self._rows(change)
        is_new = pc.greater(rows.column(COPIES), 0)
        # First what goes: a new row may have the key of a row that is removed.
        self._add(connection, rows.filter(pc.invert(is_new)))
        self._add_new(connection, rows.filter(is_new))

    def _add_new(self, connection: Connection, added: pa.Table) -> None:
        """Adds rows of a view with a key; checks that no two rows have the same."""
        repeated = [key for key, count in Counter(added.column("_key").to_pylist()).items() if count > 1]
        if not repeated:
            self._add(connection, added)
            several = sqlalchemy.select(self.table.c["_key"]).where(self.table.c[COPIES] > 1).limit(1)
            repeated = list(connection.execute(several).scalars())
        if repeated:
            raise DuplicateKey(
                f"two rows have the same key ({', '.join(self._key)}): {repeated[0]}. A key must identify a row: "
                "correct key in the view's file or the query, or remove key"
            )

    def drop_until(self, connection: Connection, time_us: int) -> None:
        """Deletes the rows whose time is not after this one, if rows have times."""
        if TIME in self._schema.names:
            connection.execute(self.table.delete().where(self.table.c[TIME] <= time_us))

    def _rows(self, change: Bag) -> pa.Table:
        columns = [change.rows.column(at) for at in range(len(self._schema))]
        rows = pa.table([*columns, change.rows.column(COUNT)], names=[*self._schema.names, COPIES])
        identities = pa.array([identity.hex() for identity in change.identities], pa.string())
        return rows.append_column("_key", canonical_keys(rows, self._key) if self._key else identities)

    def _add(self, connection: Connection, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._database.upsert(connection, self.table, rows)
        gone = rows.filter(pc.less(rows.column(COPIES), 0)).column("_key").to_pylist()
        if gone:
            remove_zero(connection, self.table, [(key,) for key in gone])

    def load(self, connection: Connection, rows: pa.Table) -> None:
        """Adds rows of a build (``view_rows``), whose identities are not there yet.

        :raises DuplicateKey: if two rows have the same key.
        """
        counted = pa.table([*rows.columns[: len(self._schema)], rows[COUNT]], names=[*self._schema.names, COPIES])
        if self._key:
            self._add_new(connection, counted.append_column("_key", canonical_keys(counted, self._key)))
        else:
            self._database.bulk_load(connection, self.table, counted.append_column(IDENTITY, rows[IDENTITY]))

    # -------------------------------------------------------------------------------------------------- the SQL view

    def select_sql(self) -> str:
        shown = self._shown
        if not shown.order and shown.limit is None and not shown.offset:
            return self._all(shown.output)
        output = ", ".join(map(quoted, shown.output))
        more = [each.column for each in shown.order if each.column not in shown.output]
        everything = self._all([*shown.output, *more, "_key"])
        # Keys break ties, so that the order does not depend on where a row is stored.
        order = ", ".join([*map(self._term, shown.order), '"_key"'])
        limit = "" if shown.limit is None else f" LIMIT {shown.limit}"
        if shown.offset:  # SQLite has no OFFSET without a LIMIT
            limit = f"{limit or (' LIMIT -1' if self._database.is_sqlite else '')} OFFSET {shown.offset}"
        return f"SELECT {output} FROM ({everything}) AS everything ORDER BY {order}{limit}"

    def _all(self, names: Sequence[str]) -> str:
        """All rows, and the further copies of those that occur more than once.

        The columns have their table, because a column of the view may have any name, such as ``i``.
        """
        columns = ", ".join(f"kept.{quoted(name)}" for name in names)
        table, copies = quoted(self.name), quoted(COPIES)
        most = f"SELECT max({copies}) FROM {table} WHERE {copies} > 1"
        numbers = (
            f"WITH RECURSIVE more(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM more WHERE i < ({most})) "
            "SELECT i FROM more"
            if self._database.is_sqlite
            else f"SELECT i FROM generate_series(2, ({most})) AS more(i)"
        )
        again = f"SELECT {columns} FROM {table} AS kept JOIN ({numbers}) AS copy ON copy.i <= kept.{copies}"
        return f"SELECT {columns} FROM {table} AS kept UNION ALL {again} WHERE kept.{copies} > 1"

    def _term(self, order: SortBy) -> str:
        """A term of ORDER BY, for both databases. Texts are sorted by their bytes, as in Spark."""
        is_text = pa.types.is_string(self._schema.field(order.column).type)
        collation = "" if self._database.is_sqlite or not is_text else ' COLLATE "C"'
        direction = "DESC" if order.descending else "ASC"
        return f"{quoted(order.column)}{collation} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}"
