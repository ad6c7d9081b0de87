"""Loads the table of a batch before it is committed, and reads partial rows back.

Loading takes many transactions, and readers do not see the table meanwhile. Large batches in PostgreSQL are copied by
Spark's tasks (``batch_tasks``). ``store.LambdaStore.commit_batch`` makes the table visible. A table that was loaded and
never committed is dropped when a batch with the same number is loaded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection, Table

from headrace.pipeline.serving.catalog import Catalog, Offsets
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.tables import create_table, drop_table

if TYPE_CHECKING:
    from headrace.pipeline.lambda_.tables import LambdaTables
    from headrace.pipeline.serving.postgresql.staging import Stage
    from headrace.pipeline.spark.staged_rows import Copied

#: Rows of a batch per transaction, so that micro-batches can commit in between.
_ROWS_PER_LOAD = 20_000
_ROWS_PER_PAGE = 200_000


class BatchTables:
    """The batch tables of one version. Any thread may call its methods."""

    def __init__(self, database: Database, catalog: Catalog, tables: LambdaTables) -> None:
        self._database, self._catalog, self._tables = database, catalog, tables
        self._key = tables.view, tables.version
        self._loaded_rows: dict[int, int] = {}

    def load(self, batch: int, cut: Offsets, tables: Iterable[pa.Table]) -> int:
        """Creates and fills the table of a batch. Readers do not see it yet.

        :param tables: partial rows of everything up to the cut, with one row per key in all of them together.
        :return: the number of rows.
        """
        table = self._created(batch, cut)
        rows = sum(self._load(table, chunk, batch) for each in tables for chunk in _chunks(each))
        if rows == 0 and not self._tables.algebra.key_columns:
            rows = self._load(table, self._tables.algebra.merge([]), batch)
        self._loaded_rows[batch] = rows
        return rows

    def load_staged(self, batch: int, cut: Offsets, copy: Callable[[Stage], Copied], last: int | None) -> int:
        """As ``load``, in PostgreSQL: rows that Spark's tasks copy to a stage.

        :param copy: copies the rows, and returns how many.
        :param last: the batch whose other rows are added.
        :raises KeysCollide: if two rows have the same key.
        """
        from headrace.pipeline.serving.postgresql import staging

        table = self._created(batch, cut)
        stage = staging.create_stage(self._database, table, batch, is_ordered=False, is_logged=True)
        try:
            copied = copy(stage)
            with self._database.begin() as connection:
                staging.check_parts(connection, stage, *copied)
                rest_of = None if last is None else self._tables.batch(last).name
                rest = staging.become_table(connection, stage, rest_of)
        finally:
            staging.try_to_drop_stages(self._database, table.name)
        self._loaded_rows[batch] = copied.row_count + rest
        return copied.row_count + rest

    def _created(self, batch: int, cut: Offsets) -> Table:
        """Creates the table of a batch, without rows."""
        table = self._tables.batch(batch)
        with self._database.begin() as connection:
            last = max((each.batch for each in self._catalog.batches(connection, *self._key)), default=0)
            assert batch > last, (
                f"batch {batch} of {self._tables.view} is already committed (the last one is {last}, up to {cut})"
            )
            drop_table(connection, table.name)
            create_table(connection, table)
        return table

    def _load(self, table: Table, partials: pa.Table, batch: int) -> int:
        rows = self._tables.shown(self._tables.fit(partials))
        try:
            with self._database.begin() as connection:
                self._database.bulk_load(connection, table, rows, batch_id=batch)
            return len(rows)
        except _duplicates():
            return self._load_into(table, partials, batch)

    def _load_into(self, table: Table, partials: pa.Table, batch: int) -> int:
        """As ``_load``, if some keys are already stored: Spark distinguishes texts that no database can store."""
        fit = self._tables.fit(partials)
        keys = self._tables.keys(fit)
        with self._database.begin() as connection:
            known = self.partials(connection, table, keys)
            rows = self._tables.shown(self._tables.algebra.merge([self._tables.algebra.loaded(known), fit]))
            self._database.upsert(connection, table, rows, batch_id=batch)
        return len(rows) - len(known)

    def row_count(self, connection: Connection, batch: int) -> int:
        """The number of rows of a batch that was loaded, also by another process."""
        loaded = self._loaded_rows.pop(batch, None)
        if loaded is not None:
            return loaded
        table = self._tables.batch(batch)
        return int(connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(table)).scalar_one())

    def partial_rows(self, batch: int) -> Iterator[pa.Table]:
        """The partial rows of a batch, some at a time. The next batch is computed from them."""
        table = self._tables.partials(self._tables.batch(batch))
        last = ""
        while True:
            with self._database.read() as connection:
                page = self._database.fetch(connection, table, condition=table.c["_key"] > last, limit=_ROWS_PER_PAGE)
            if len(page):
                yield self._tables.algebra.loaded(page)
                last = page.column("_key")[-1].as_py()
            if len(page) < _ROWS_PER_PAGE:
                return

    def partials(self, connection: Connection, table: Table, keys: pa.StringArray) -> pa.Table:
        """The partial columns of the rows with these keys, as they are stored, and ``_key``."""
        return self._database.fetch(connection, self._tables.partials(table), keys)


def _chunks(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(start, _ROWS_PER_LOAD) for start in range(0, len(table), _ROWS_PER_LOAD))


def _duplicates() -> tuple[type[Exception], ...]:
    """The exceptions that the drivers raise for a key that is already stored."""
    try:
        import psycopg
    except ImportError:
        return (sqlite3.IntegrityError,)
    return (sqlite3.IntegrityError, psycopg.errors.UniqueViolation)
