"""Reads what the runner has reported of a view: the state of its stream, a snapshot of its rows, and its changes.

Servers of the change feed use it, in other processes than the runner. They only read, apart from leases: a lease says
that somebody follows the view. A role that may only SELECT cannot write leases; views with ``[changes] always = true``
or ``[publish]`` need none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Engine, inspect, select
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from headrace.pipeline.changes.outbox import Followed, followed
from headrace.pipeline.changes.reported_rows import ReportedRows
from headrace.pipeline.changes.row_values import Row
from headrace.pipeline.serving.catalog_tables.row_updates import update_or_insert
from headrace.pipeline.serving.catalog_tables.versions import VIEWS
from headrace.pipeline.serving.change_tables import CHANGE_LEASES, CHANGE_STEPS, CHANGES, FOLLOWED, reported_table_name
from headrace.pipeline.serving.database_url import parse_url
from headrace.pipeline.serving.errors import DatabaseUnreachable, ServingError, UnknownView
from headrace.pipeline.serving.sqlite import dialect as sqlite_dialect
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.runtime.clock import Clock, SystemClock

_BUSY_TIMEOUT_MS = 10_000


class ReportedChange(NamedTuple):
    """A change as its stream reports it.

    :ivar as_of: up to where the state after the change counts. All changes of a step have the same.
    :ivar is_last_of_step: whether the reported rows are a state of the view again after this change.
    """

    seq: int
    op: str
    key: Row | None
    before: Row | None
    after: Row | None
    copies: int
    as_of: Mapping[str, object]
    is_last_of_step: bool


class CannotFollow(ServingError):
    """The view cannot be followed, because this server may not say so to the runner."""


class ChangeReader:
    """Reads one database. Any thread may call its methods."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        parsed = parse_url(url)
        self.name = parsed.render_as_string(hide_password=True)
        self._clock = clock or SystemClock()
        self._path = Path(parsed.database or "") if parsed.drivername == "sqlite" else None
        self._reader: Engine
        self._writer: Engine
        if self._path is None:
            from headrace.pipeline.serving.postgresql import dialect as postgresql_dialect

            self._reader = postgresql_dialect.open_engine(parsed, read_only=True)
            self._writer = postgresql_dialect.open_engine(parsed, read_only=False)
        else:
            self._reader, self._writer = (
                sqlite_dialect.open_engine(self._path, read_only=read_only, busy_timeout_ms=_BUSY_TIMEOUT_MS)
                for read_only in (True, False)
            )

    def close(self) -> None:
        self._reader.dispose()
        self._writer.dispose()

    # ------------------------------------------------------------------------------------------------------- reading

    def check_view(self, view: str) -> None:
        """
        :raises UnknownView: if the catalog has no such view.
        """
        with self._snapshot() as connection:
            if not inspect(connection).has_table(FOLLOWED.name):
                raise UnknownView(f"{self.name} has no followed views: run 'headrace views run' of this release once")
            if connection.execute(select(VIEWS.c.name).where(VIEWS.c.name == view)).one_or_none() is None:
                raise UnknownView(f"there is no view {view!r}: GET /views lists the views")

    def state(self, view: str) -> Followed | None:
        """The state of the stream; None if the view is not followed."""
        with self._snapshot() as connection:
            return followed(connection, view)

    def last(self, view: str) -> tuple[str, int] | None:
        """The stream and its last number, or None. Cheap, because it is asked all the time."""
        with self._snapshot() as connection:
            query = select(FOLLOWED.c.stream, FOLLOWED.c.last_seq).where(FOLLOWED.c.view == view)
            row = connection.execute(query).one_or_none()
            return None if row is None else (row.stream, row.last_seq)

    @contextmanager
    def rows(self, view: str) -> Iterator[tuple[Followed, Iterator[Row]] | None]:
        """The reported rows, and the state that they belong to, in one snapshot; None if the view is not followed.

        Read the rows soon: the snapshot keeps the runner from beginning another stream.
        """
        with self._snapshot() as connection:
            state = followed(connection, view) if self._lock_reported(connection, view) else None
            yield None if state is None else (state, ReportedRows(connection, view, state.columns).rows())

    def _lock_reported(self, connection: Connection, view: str) -> bool:
        """Keeps the table of reported rows in place, before the snapshot is taken; False if there is none.

        PostgreSQL would read a table that has taken its place meanwhile, and find it empty in this snapshot.
        """
        if self._path is not None:
            return True
        try:
            connection.exec_driver_sql(f"LOCK TABLE {quoted(reported_table_name(view))} IN ACCESS SHARE MODE")
        except ProgrammingError:
            return False
        return True

    def changes(self, view: str, stream: str, after: int, limit: int) -> list[ReportedChange] | None:
        """The changes after this number.

        :return: None if the outbox no longer has all of them, or has another stream.
        """
        with self._snapshot() as connection:
            state = followed(connection, view)
            if state is None or state.stream != stream or not state.first_seq - 1 <= after <= state.last_seq:
                return None
            query = CHANGES.select().where(CHANGES.c.view == view, CHANGES.c.seq > after)
            rows = connection.execute(query.order_by(CHANGES.c.seq).limit(limit)).fetchall()
            if not rows:
                return []
            ending = CHANGE_STEPS.select().where(CHANGE_STEPS.c.view == view, CHANGE_STEPS.c.last_seq >= rows[0].seq)
            steps = iter(connection.execute(ending.order_by(CHANGE_STEPS.c.last_seq)).fetchall())
        found, step, as_of = [], None, None
        for row in rows:
            if step is None or row.seq > step.last_seq:
                step = next(steps)
                as_of = json.loads(step.as_of)
            assert as_of is not None, "every change belongs to a step"
            key, before, after_ = (
                None if each is None else json.loads(each) for each in (row.key, row.before, row.after)
            )
            is_last = row.seq == step.last_seq
            found.append(ReportedChange(row.seq, row.op, key, before, after_, row.copies, as_of, is_last))
        return found

    # -------------------------------------------------------------------------------------------------------- leases

    def follow(self, view: str, for_ms: int) -> None:
        """Asks the runner to follow the view for this time at least.

        :raises CannotFollow: if this server may not write to the database.
        """
        until_ms = self._clock.wall_ms() + for_ms
        try:
            with self._writer.connect() as connection, connection.begin():
                update_or_insert(connection, CHANGE_LEASES, {"view": view}, {"until_ms": until_ms})
        except IntegrityError:  # another server has written the same lease at this moment
            return
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            raise CannotFollow(
                f"cannot ask the runner to follow {view} ({reason}): allow this server INSERT and UPDATE on "
                f"{CHANGE_LEASES.name}, or set always = true in [changes] of the view's file"
            ) from None

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        if self._path is not None and not self._path.exists():
            raise DatabaseUnreachable(f"there is no serving database at {self._path}: 'headrace views run' creates it")
        try:
            with self._reader.connect() as connection, connection.begin() as transaction:
                yield connection
                transaction.rollback()
        except DBAPIError as error:
            reason = " ".join(str(error.orig).split())
            raise DatabaseUnreachable(f"cannot read {self.name}: {reason}") from None
