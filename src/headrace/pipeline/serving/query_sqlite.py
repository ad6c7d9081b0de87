"""Runs one read-only statement of a user in SQLite; see ``query``.

The timeout is checked between the steps of SQLite's virtual machine. A function is one step, however long it takes. So
the size of values is limited: to the size of a record, and to less if a statement uses a function whose time grows with
the square of the length of its arguments.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from sqlalchemy import Connection

from headrace.pipeline.serving.answer_limits import Row, fetch
from headrace.pipeline.serving.errors import ONE_STATEMENT, ONLY_READING, NotReadOnly, QueryError, too_slow
from headrace.pipeline.serving.sqlite_dialect import driver
from headrace.runtime.clock import Clock

#: Bytes of one value at most. SQL can produce large values without reading any.
_MAX_VALUE_BYTES = 1 << 20
#: Functions that compare each position of a text with another text: half a second for texts of this size.
_SLOW_FUNCTIONS = {"instr", "replace", "trim", "ltrim", "rtrim"}
_MAX_SLOW_VALUE_BYTES = 128 << 10
#: The limit of patterns of LIKE and GLOB, for the same reason.
_MAX_PATTERN_BYTES = 256
#: Steps of SQLite's virtual machine between two checks of the timeout: about a millisecond.
_STEPS_PER_CLOCK_CHECK = 10_000

#: Names of columns, rows, whether there are more rows, names of tables and views that were read.
QueryResult = tuple[list[str], list[Row], bool, set[str]]


def run_query(connection: Connection, sql: str, limit: int, timeout_ms: int, clock: Clock) -> QueryResult:
    raw = driver(connection)
    views_read: set[str] = set()
    deadline_ms = clock.monotonic_ms() + timeout_ms
    raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    raw.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MAX_PATTERN_BYTES)
    raw.set_authorizer(_authorizer(raw, views_read))
    raw.set_progress_handler(lambda: clock.monotonic_ms() >= deadline_ms, _STEPS_PER_CLOCK_CHECK)
    cursor = raw.cursor()
    try:
        cursor.execute(sql)
        rows, has_more = fetch(cursor, limit)
        columns = [description[0] for description in cursor.description or ()]
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        raise _sqlite_error(error, timeout_ms) from None
    finally:
        cursor.close()
        raw.set_progress_handler(None, 0)
        raw.set_authorizer(None)
    return columns, rows, has_more, views_read


_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def _authorizer(
    raw: sqlite3.Connection, views_read: set[str]
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    def authorize(action: int, first: str | None, second: str | None, _: str | None, through: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            views_read.update(name for name in (first, through) if name)
        if action == sqlite3.SQLITE_FUNCTION and second == "load_extension":
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and second in _SLOW_FUNCTIONS:
            raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_SLOW_VALUE_BYTES)
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    return authorize


def _sqlite_error(error: Exception, timeout_ms: int) -> QueryError:
    text = str(error)
    if "interrupted" in text:
        return too_slow(timeout_ms)
    if "one statement at a time" in text:
        return NotReadOnly(ONE_STATEMENT)
    if "not authorized" in text or "prohibited" in text or "readonly" in text:
        return NotReadOnly(ONLY_READING)
    if "too big" in text:
        slow = ", ".join(sorted(_SLOW_FUNCTIONS))
        text = f"too big: a value has more than {_MAX_VALUE_BYTES} bytes, or {_MAX_SLOW_VALUE_BYTES} with one of {slow}"
    return QueryError(text)
