"""One statement of a user against SQLite, which can read and nothing else; see ``query``.

The clock is looked at between the steps of SQLite's machine, and a function is one step, however long it takes. So
values are limited: to what a record may be, and to less where a statement uses a function whose time grows with the
square of its arguments' length.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from sqlalchemy import Connection

from headrace.pipeline.serving.answer_limits import Row, fetch
from headrace.pipeline.serving.errors import ONE_STATEMENT, ONLY_READING, NotReadOnly, QueryError, too_slow
from headrace.pipeline.serving.sqlite_dialect import driver
from headrace.runtime.clock import Clock

#: Of one value; SQL can make large ones out of nothing.
_MAX_VALUE_BYTES = 1 << 20
#: These compare each place of a text with all of another: half a second for such a one.
_SLOW_FUNCTIONS = {"instr", "replace", "trim", "ltrim", "rtrim"}
_MAX_SLOW_VALUE_BYTES = 128 << 10
#: Of LIKE and GLOB, for the same reason.
_MAX_PATTERN_BYTES = 256
#: How many steps of SQLite's machine pass between two looks at the clock: about a millisecond.
_STEPS_A_LOOK = 10_000

#: Names of columns, rows, whether there are more, names of tables and views that were read.
Asked = tuple[list[str], list[Row], bool, set[str]]


def ask(connection: Connection, sql: str, limit: int, timeout_ms: int, clock: Clock) -> Asked:
    raw = driver(connection)
    touched: set[str] = set()
    deadline_ms = clock.monotonic_ms() + timeout_ms
    raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    raw.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MAX_PATTERN_BYTES)
    raw.set_authorizer(_authorizer(raw, touched))
    raw.set_progress_handler(lambda: clock.monotonic_ms() >= deadline_ms, _STEPS_A_LOOK)
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
    return columns, rows, has_more, touched


_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def _authorizer(
    raw: sqlite3.Connection, touched: set[str]
) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    def authorize(action: int, first: str | None, second: str | None, _: str | None, through: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            touched.update(name for name in (first, through) if name)
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
        text = (
            f"too big: a value is longer than {_MAX_VALUE_BYTES} bytes, or {_MAX_SLOW_VALUE_BYTES} with one of {slow}"
        )
    return QueryError(text)
