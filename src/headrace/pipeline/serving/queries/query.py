"""Answers SQL queries of readers: one read-only statement, with limits, and with the offsets of its answer.

A query cannot change anything, whatever its text is. SQLite: the file is opened with ``mode=ro``, the connection is
``query_only``, and an authorizer allows only SELECT, READ, functions and recursion. PostgreSQL: the transaction is READ
ONLY, and the statement is the query of a cursor, which accepts only queries. For a server that untrusted users reach,
use a role that may only SELECT: functions such as pg_terminate_backend do not count as writes.

SQLite's progress handler and ``statement_timeout`` limit the time. Rows are fetched up to the limit of rows or bytes.
The answer and its :class:`AsOf` come from one snapshot. The authorizer knows which views a statement has read; in
PostgreSQL the locks of the transaction show it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from headrace.pipeline.serving.catalog_tables.version_states import VersionState
from headrace.pipeline.serving.catalog_tables.versions import PROGRESS, REPORTS, VERSIONS, VIEWS, parse_offsets
from headrace.pipeline.serving.database_url import parse_url
from headrace.pipeline.serving.errors import DatabaseUnreachable, NotServed, QueryError, ServingError, UnknownView
from headrace.pipeline.serving.queries import query_sqlite
from headrace.pipeline.serving.queries.answer_limits import fetch
from headrace.pipeline.serving.queries.open_query import OpenQuery
from headrace.pipeline.serving.queries.same_offsets import check_same_offsets
from headrace.pipeline.serving.sqlite import dialect as sqlite_dialect
from headrace.runtime.clock import Clock, SystemClock
from headrace.views.answers import AsOf

DEFAULT_LIMIT = 1000
DEFAULT_TIMEOUT_MS = 30_000
_BUSY_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    columns: list[str]
    rows: list[tuple[object, ...]]
    is_truncated: bool
    as_of: list[AsOf]


@dataclass(frozen=True, slots=True)
class ViewSummary:
    name: str
    architecture: str
    serving_version: int | None
    state: str | None
    columns: dict[str, str]
    as_of: AsOf | None


class QueryService:
    """Answers queries from one database. Any thread may call its methods."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._has_reports = False
        parsed = parse_url(url)
        self.name = parsed.render_as_string(hide_password=True)
        self._path = Path(parsed.database or "") if parsed.drivername == "sqlite" else None
        self._open_query: Callable[[Connection, str, int, Clock], AbstractContextManager[OpenQuery]]
        if self._path is None:
            from headrace.pipeline.serving.postgresql import dialect as postgresql_dialect
            from headrace.pipeline.serving.queries import query_postgresql

            self._engine = postgresql_dialect.open_engine(parsed, read_only=True)
            self._open_query = query_postgresql.opened
        else:
            self._engine = sqlite_dialect.open_engine(
                self._path, read_only=True, busy_timeout_ms=_BUSY_TIMEOUT_MS, for_queries=True
            )
            self._open_query = query_sqlite.opened

    def close(self) -> None:
        self._engine.dispose()

    def query(
        self,
        sql: str,
        *,
        limit: int = DEFAULT_LIMIT,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        same_offsets: bool = False,
    ) -> Answer:
        """Answers a query with its first ``limit`` rows.

        :param same_offsets: refuse an answer whose views count other records of a common topic.
        :raises DifferentOffsets: then.
        :raises QueryError: if the query is wrong, would change something, or takes too long.
        :raises DatabaseUnreachable: if the database does not answer.
        """
        with self.open(sql, timeout_ms=timeout_ms, same_offsets=same_offsets) as (query, as_of):
            rows, is_truncated = fetch(query.cursor, limit)
        return Answer(query.columns, rows, is_truncated, as_of)

    @contextmanager
    def open(
        self, sql: str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS, same_offsets: bool = False
    ) -> Iterator[tuple[OpenQuery, list[AsOf]]]:
        """Runs a query, and keeps its snapshot until the end of the context. Errors as in :meth:`query`."""
        if not re.sub(r"--[^\n]*|/\*.*?\*/|[\s;]", "", sql, flags=re.DOTALL):
            raise QueryError("the query is empty: write one SELECT, VALUES or WITH")
        with self._snapshot() as connection:
            self._look_for_reports(connection)
            try:
                with self._open_query(connection, sql, timeout_ms, self._clock) as query:
                    as_of = self._as_of(connection, query.views_read)
                    if same_offsets:
                        check_same_offsets(as_of)
                    yield query, as_of
            except QueryError as error:
                raise self._with_hint(error) from None

    def views(self) -> list[ViewSummary]:
        with self._snapshot() as connection:
            self._look_for_reports(connection)
            known = {found.view: found for found in self._as_of(connection, None)}
            states = {(row.view, row.version): row.state for row in connection.execute(VERSIONS.select())}
            return [
                ViewSummary(
                    row.name,
                    row.architecture,
                    row.serving_version,
                    states.get((row.name, row.serving_version)),
                    _columns(connection, row.name),
                    known.get(row.name),
                )
                for row in connection.execute(VIEWS.select().order_by(VIEWS.c.name)).fetchall()
            ]

    def as_of(self, views: Collection[str]) -> list[AsOf]:
        """Up to where the rows of these views count now."""
        with self._snapshot() as connection:
            return self._as_of(connection, views)

    def key_of(self, view: str, version: int) -> tuple[str, ...] | None:
        """The columns that identify a row of a view; None if none are known to."""
        from headrace.pipeline.serving.catalog_tables.version_columns import key_of

        with self._snapshot() as connection:
            has_keys = inspect(connection).has_table("headrace_keys")
            return key_of(connection, (view, version)) if has_keys else None

    def _as_of(self, connection: Connection, names: Collection[str] | None) -> list[AsOf]:
        now_ms = self._clock.wall_ms()
        reports = self._complete_times(connection)
        serving = (PROGRESS.c.view == VIEWS.c.name) & (PROGRESS.c.version == VIEWS.c.serving_version)
        query = select(PROGRESS).join(VIEWS, serving).order_by(PROGRESS.c.view)
        if names is not None:
            query = query.where(VIEWS.c.name.in_(names))
        found = []
        for row in connection.execute(query).fetchall():
            complete_ms = reports.get((row.view, row.version))
            age_ms = max(0, now_ms - (complete_ms or row.updated_ms))
            offsets = parse_offsets(row.offsets)
            found.append(AsOf(row.view, row.version, offsets, row.updated_ms, age_ms, complete_ms))
        return found

    def _complete_times(self, connection: Connection) -> dict[tuple[str, int], int | None]:
        """Empty in a database that only an older version of Headrace has opened."""
        if not self._has_reports:
            return {}
        return {(row.view, row.version): row.complete_ms for row in connection.execute(REPORTS.select())}

    def _look_for_reports(self, connection: Connection) -> None:
        """Must come before a statement of a user: the authorizer of SQLite lets nobody look at the schema."""
        self._has_reports = self._has_reports or inspect(connection).has_table(REPORTS.name)

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        if self._path is not None and not self._path.exists():
            raise DatabaseUnreachable(f"there is no serving database at {self._path}: 'headrace views run' creates it")
        try:
            connection = self._engine.connect()
        except DBAPIError as error:
            raise DatabaseUnreachable(f"cannot open {self.name}: {' '.join(str(error.orig).split())}") from None
        driver = connection.connection.driver_connection
        try:
            with connection, connection.begin() as transaction:
                self._check_catalog(connection)
                yield connection
                transaction.rollback()
        except (DBAPIError, ServingError) as error:
            if getattr(driver, "closed", False):  # whatever the error says, the connection broke
                broke = str(error.orig if isinstance(error, DBAPIError) else error)
                raise DatabaseUnreachable(f"the connection to {self.name} broke: {' '.join(broke.split())}") from None
            raise

    def _check_catalog(self, connection: Connection) -> None:
        """
        :raises UnknownView: if this is not a serving database of Headrace.
        """
        try:
            if self._path is None:
                from headrace.pipeline.serving.postgresql.dialect import enter_gate

                enter_gate(connection)
            else:
                connection.execute(select(VIEWS.c.name).limit(1))
        except DBAPIError as error:
            raise UnknownView(
                f"{self.name} has no Headrace views ({_first_line(error)}): check the URL, or run "
                "'headrace views apply'"
            ) from None

    def _with_hint(self, error: QueryError) -> QueryError:
        missing = re.search(r'no such table: (\S+)|relation "([^"]+)" does not exist', str(error))
        if missing is None:
            return error
        name = missing[1] or missing[2]
        with self._snapshot() as connection:
            names = list(connection.scalars(select(VIEWS.c.name).order_by(VIEWS.c.name)))
            if name in names:
                return NotServed(_why_not_served(connection, name))
        near = get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the views are: {', '.join(names) or 'none yet'}"
        return type(error)(f"{error}; {hint}")


def _why_not_served(connection: Connection, view: str) -> str:
    """Explains why no version of a view serves, by the state of its newest version."""
    query = VERSIONS.select().where(VERSIONS.c.view == view).order_by(VERSIONS.c.version.desc()).limit(1)
    newest = connection.execute(query).one_or_none()
    if newest is None or newest.state != VersionState.FAILED:
        state = "" if newest is None else f": v{newest.version} is {newest.state}"
        follow = f"'headrace views status {view}' shows its progress"
        return f"no version of {view} has caught up yet{state}, so there is nothing to read; {follow}"
    if newest.due_ms is not None:
        then = f"it is tried again; 'headrace views status {view}' shows its progress"
    else:
        then = f"correct it and run 'headrace views apply', or 'headrace views switch {view} --restart'"
    return f"{view} has nothing to read, because v{newest.version} failed: {newest.error}; {then}"


def _columns(connection: Connection, view: str) -> dict[str, str]:
    """The columns of the SQL view, with their types; empty if no version serves."""
    try:
        found = inspect(connection).get_columns(view)
    except NoSuchTableError:
        return {}
    return {column["name"]: column["type"].compile(connection.dialect) for column in found}


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).split("\n")[0]
