"""Runs one read-only statement of a user in PostgreSQL; see ``query``."""

from __future__ import annotations

import re

import psycopg
from sqlalchemy import Connection

from headrace.pipeline.serving.answer_limits import fetch
from headrace.pipeline.serving.errors import ONE_STATEMENT, ONLY_READING, NotReadOnly, QueryError, too_slow
from headrace.pipeline.serving.postgresql_dialect import driver
from headrace.pipeline.serving.query_sqlite import QueryResult
from headrace.runtime.clock import Clock

#: Rows that are fetched before their size is checked.
_ROWS_AT_A_TIME = 100
_LOCKED_VIEWS = b"""SELECT relname FROM pg_locks JOIN pg_class ON pg_class.oid = relation
    WHERE pid = pg_backend_pid() AND locktype = 'relation' AND relkind = 'v'"""


def run_query(connection: Connection, sql: str, limit: int, timeout_ms: int, _: Clock) -> QueryResult:
    if not re.match(r"(--[^\n]*\n|/\*.*?\*/|[\s(])*(SELECT|WITH|VALUES|TABLE)\b", sql, re.IGNORECASE | re.DOTALL):
        raise NotReadOnly(ONLY_READING)  # PostgreSQL refuses it too, but its message is about a cursor
    raw = driver(connection)
    try:
        raw.execute(f"SET LOCAL statement_timeout = {timeout_ms}".encode())
        raw.execute(f"SET LOCAL idle_in_transaction_session_timeout = {timeout_ms + 60_000}".encode())
        with raw.cursor(name="headrace_query") as cursor:
            cursor.execute(sql.encode())
            cursor.itersize = _ROWS_AT_A_TIME
            rows, has_more = fetch(cursor, limit)
            columns = [description.name for description in cursor.description or ()]
        views_read = {row[0] for row in raw.execute(_LOCKED_VIEWS).fetchall()}
    except psycopg.Error as error:
        raise _postgresql_error(error, timeout_ms) from None
    return columns, rows, has_more, views_read


def _postgresql_error(error: psycopg.Error, timeout_ms: int) -> QueryError:
    text = error.diag.message_primary or str(error)
    if isinstance(error, psycopg.errors.QueryCanceled):
        return too_slow(timeout_ms)
    if "multiple commands" in text:
        return NotReadOnly(ONE_STATEMENT)
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or text.startswith("DECLARE CURSOR must not"):
        return NotReadOnly(ONLY_READING)
    hint = error.diag.message_hint
    return QueryError(f"{text} ({hint})" if hint else text)
