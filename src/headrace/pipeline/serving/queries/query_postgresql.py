"""Runs one read-only statement of a user in PostgreSQL; see ``query``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from sqlalchemy import Connection

from headrace.pipeline.serving.errors import ONE_STATEMENT, ONLY_READING, NotReadOnly, QueryError, too_slow
from headrace.pipeline.serving.postgresql.dialect import driver
from headrace.pipeline.serving.queries.answer_limits import Row, blocks
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.pipeline.serving.queries.arrow_values import ArrowRows

#: Rows that are fetched before their size is checked.
_ROWS_AT_A_TIME = 100
_CURSOR = "headrace_query"
#: The text before the statement that PostgreSQL gets.
_BEFORE = f'DECLARE "{_CURSOR}" CURSOR FOR '
_LOCKED_VIEWS = b"""SELECT relname FROM pg_locks JOIN pg_class ON pg_class.oid = relation
    WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relkind = 'v'"""


@contextmanager
def opened(connection: Connection, sql: str, timeout_ms: int, clock: Clock) -> Iterator[PostgresqlQuery]:
    """
    :raises QueryError: if the statement is wrong, is not a query, or takes too long.
    """
    if not re.match(r"(--[^\n]*\n|/\*.*?\*/|[\s(])*(SELECT|WITH|VALUES|TABLE)\b", sql, re.IGNORECASE | re.DOTALL):
        raise NotReadOnly(ONLY_READING)  # PostgreSQL refuses it too, but its message is about a cursor
    raw = driver(connection)
    deadline_ms = clock.monotonic_ms() + timeout_ms

    def check_time() -> None:
        if clock.monotonic_ms() >= deadline_ms:
            raise too_slow(timeout_ms)

    try:
        raw.execute(f"SET LOCAL statement_timeout = {timeout_ms}".encode())
        raw.execute(f"SET LOCAL idle_in_transaction_session_timeout = {timeout_ms + 60_000}".encode())
        with _server_cursor(raw) as cursor:
            cursor.execute(sql.encode())
            cursor.itersize = _ROWS_AT_A_TIME
            columns = list(cursor.description or ())
            views_read = {row[0] for row in raw.execute(_LOCKED_VIEWS).fetchall()}
            yield PostgresqlQuery([each.name for each in columns], views_read, cursor, sql, check_time)
    except psycopg.Error as error:
        raise _postgresql_error(error, timeout_ms) from None


@dataclass(frozen=True)
class PostgresqlQuery:
    """A statement that PostgreSQL is running; see :class:`~headrace.pipeline.serving.queries.open_query.OpenQuery`."""

    columns: list[str]
    views_read: set[str]
    cursor: psycopg.ServerCursor
    sql: str
    check_time: Callable[[], None]

    def blocks(self) -> Iterator[list[Row]]:
        for block in blocks(self.cursor):
            self.check_time()
            yield block

    def arrow(self) -> ArrowRows:
        from headrace.pipeline.serving.queries.arrow_postgresql import arrow_rows

        return arrow_rows(self.cursor.connection, self.sql, list(self.cursor.description or ()), self.check_time)


@contextmanager
def _server_cursor(connection: psycopg.Connection) -> Iterator[psycopg.ServerCursor]:
    cursor = connection.cursor(name=_CURSOR)
    try:
        yield cursor
    finally:
        try:
            cursor.close()
        except psycopg.OperationalError:  # The connection broke, so psycopg did not mark its own cursor as closed.
            cursor.close()
            raise


def _postgresql_error(error: psycopg.Error, timeout_ms: int) -> QueryError:
    text = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.QueryCanceled):
        return too_slow(timeout_ms)
    if "multiple commands" in text:
        return NotReadOnly(ONE_STATEMENT)
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or text.startswith("DECLARE CURSOR must not"):
        return NotReadOnly(ONLY_READING)
    hint = error.diag.message_hint
    found = QueryError(f"{text} ({hint})" if hint else text)
    position = int(error.diag.statement_position or 0) - len(_BEFORE)
    found.position = position if position > 0 else None
    return found
