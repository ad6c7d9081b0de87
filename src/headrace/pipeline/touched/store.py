"""Stores the states, the rows and the progress of a version: a micro-batch or a switch is one transaction.

At every commit this holds: **the rows of the view, and all states, are those of exactly the offsets in
headrace_progress.** A crash leaves the last commit. It may also leave the tables of a build that was never switched to;
the next build drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headrace.pipeline.serving.catalog import Batch, Catalog, Offsets, Progress
from headrace.pipeline.serving.database import Begin, Database
from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.tables import drop_table, repoint_view
from headrace.pipeline.touched.bag import Bag
from headrace.pipeline.touched.engine import Changes
from headrace.pipeline.touched.event_times import ClockTable
from headrace.pipeline.touched.state_table import StateTable
from headrace.pipeline.touched.table_source import TableSource
from headrace.pipeline.touched.tables import ViewTable, build_name

#: How long dropping the tables of an old build waits for readers that still use them.
_DROP_WAIT_MS = 2_000


class ProgressMoved(ServingError):
    """The changes were computed from a progress that is no longer current: another process writes this version."""


class BuildChange(NamedTuple):
    """The changes of a micro-batch in the tables of a build.

    :ivar tables: by the name of a source of kind table or changes, the change of its records.
    :ivar clocks: the clocks after the micro-batch.
    :ivar kept_after: rows whose time is not after this one are deleted.
    """

    changes: Changes
    tables: Mapping[str, Bag]
    clocks: Mapping[str, int]
    kept_after: int


@dataclass(frozen=True, eq=False)
class BuildTables:
    """The tables of one build.

    :ivar states: by the number of an input.
    :ivar tables: by the name of a source of kind table or changes.
    :ivar clocks: None if the view needs none.
    """

    number: int
    rows: ViewTable
    states: Mapping[int, StateTable]
    tables: Mapping[str, TableSource]
    clocks: ClockTable | None = None

    def create(self, connection: Connection) -> None:
        self.rows.create(connection)
        for state in [*self.states.values(), *(table.state for table in self.tables.values())]:
            state.create(connection)
        if self.clocks is not None:
            self.clocks.create(connection)

    def are_there(self, connection: Connection) -> bool:
        """Whether the database has these tables: an earlier release stored states in another form, without blocks."""
        states = [*self.states.values(), *(table.state for table in self.tables.values())]
        wanted = [state.blocks.name for state in states]
        if self.clocks is not None:
            wanted.append(self.clocks.table.name)
        return not wanted or set(wanted) <= set(sqlalchemy.inspect(connection).get_table_names())

    def add(self, connection: Connection, change: BuildChange) -> None:
        if self.clocks is not None and self.clocks.read(connection) != change.clocks:
            self.rows.drop_until(connection, change.kept_after)
            for state in self.states.values():
                state.drop_until(connection, change.kept_after)
            self.clocks.write(connection, change.clocks)
        for number, bag in sorted(change.changes.states.items()):
            self.states[number].add(connection, bag)
        for name, bag in sorted(change.tables.items()):
            self.tables[name].state.add(connection, bag)
        self.rows.add(connection, change.changes.rows)


class TouchedStore:
    """The data of one version. Any thread may call its methods."""

    def __init__(self, database: Database, catalog: Catalog, view: str, version: int) -> None:
        self.view, self.version = view, version
        self._database, self._catalog = database, catalog

    def progress(self, connection: Connection | None = None) -> Progress | None:
        if connection is not None:
            return self._catalog.progress(connection, self.view, self.version)
        with self._database.read() as reader:
            return self._catalog.progress(reader, self.view, self.version)

    def last_build(self) -> Batch | None:
        with self._database.read() as connection:
            return next(reversed(self._catalog.batches(connection, self.view, self.version)), None)

    # ------------------------------------------------------------------------------------------------------- writing

    def commit_step(
        self, build: BuildTables, before: Progress, after: Progress, change: BuildChange, begin: Begin | None = None
    ) -> None:
        """Writes a micro-batch.

        :param begin: begins the transaction; a transaction of its own by default.
        :raises ProgressMoved: if the progress is no longer ``before``; nothing is changed then.
        """
        with (begin or self._database.begin)() as connection:
            self._check(connection, before, build.number)
            build.add(connection, change)
            self._catalog.set_progress(connection, after)

    def commit_build(self, build: BuildTables, cut: Offsets, before: Progress | None, after: Progress) -> None:
        """Makes readers see a build that was loaded.

        :param before: the progress that the build is up to date with; None before the first build.
        """
        with self._database.begin() as connection:
            view = self._catalog.lock_view(connection, self.view)
            self._check(connection, before, None)
            name, rows = build.rows.table.name, self._count(connection, build)
            self._catalog.add_batch(connection, Batch(self.view, self.version, build.number, cut, name, rows))
            self._catalog.set_progress(connection, after)
            select_sql = build.rows.select_sql()
            self._catalog.set_select(connection, self.view, self.version, select_sql)
            if view.serving_version == self.version:
                repoint_view(connection, self.view, select_sql)  # last, because readers wait from here on
        self.drop_old_builds()

    def _count(self, connection: Connection, build: BuildTables) -> int:
        rows = sqlalchemy.select(sqlalchemy.func.count()).select_from(build.rows.table)
        return int(connection.execute(rows).scalar_one())

    def _check(self, connection: Connection, before: Progress | None, build: int | None) -> None:
        self._catalog.lock_view(connection, self.view)
        now = self._catalog.progress(connection, self.view, self.version)
        last = next(reversed(self._catalog.batches(connection, self.view, self.version)), None)
        is_same = (now is None) == (before is None) and (
            now is None or before is None or (now.batch_id, now.offsets) == (before.batch_id, before.offsets)
        )
        if not is_same or (build is not None and (last is None or last.batch != build)):
            raise ProgressMoved(
                f"the progress of {self.view} v{self.version} has changed: another process writes this version; run "
                "only one 'headrace views run' per project"
            )

    # ------------------------------------------------------------------------------------------------------ dropping

    def drop_old_builds(self) -> None:
        """Drops all builds but the one that serves. Tables that readers still use stay until the next call."""
        with self._database.read() as connection:
            builds = self._catalog.batches(connection, self.view, self.version)
        for old in builds[:-1]:
            try:
                self.drop_build(old.batch, is_known=True)
            except OperationalError as error:
                if "lock" not in str(error.orig):
                    raise

    def drop_build(self, number: int, *, is_known: bool = False) -> None:
        with self._database.begin() as connection:
            if not self._database.is_sqlite:
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_DROP_WAIT_MS}")
            prefix = build_name(self.view, self.version, number)
            _drop(connection, lambda name: name == prefix or name.startswith(f"{prefix}_"))
            if is_known:
                self._catalog.remove_batch(connection, self.view, self.version, number)

    def drop(self, connection: Connection) -> None:
        """Drops all tables of the version."""
        prefix = build_name(self.view, self.version, 0).removesuffix("0")
        _drop(connection, lambda name: name.startswith(prefix))


def _drop(connection: Connection, is_it: Callable[[str], bool]) -> None:
    for name in sqlalchemy.inspect(connection).get_table_names():
        if is_it(name):
            drop_table(connection, name)


def shown_schema(names: tuple[str, ...], rows: pa.Schema) -> pa.Schema:
    """The schema of the root's rows under other names."""
    return pa.schema([pa.field(name, field.type) for name, field in zip(names, rows, strict=True)])
