"""Runs one read-only statement of a user in SQLite; see ``query``.

The timeout is checked between the steps of SQLite's virtual machine. A function is one step, however long it takes. So
the size of values is limited: to the size of a record, and to less if a statement uses a function whose time grows with
the square of the length of its arguments.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from headrace.pipeline.serving.errors import ONE_STATEMENT, ONLY_READING, NotReadOnly, QueryError, too_slow
from headrace.pipeline.serving.queries.answer_limits import Row, blocks
from headrace.pipeline.serving.sqlite.dialect import driver
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.pipeline.serving.queries.arrow_values import ArrowRows

#: Bytes of one value at most. SQL can produce large values without reading any.
_MAX_VALUE_BYTES = 1 << 20
#: Functions that compare each position of a text with another text: half a second for texts of this size.
_SLOW_FUNCTIONS = {"instr", "replace", "trim", "ltrim", "rtrim"}
_MAX_SLOW_VALUE_BYTES = 128 << 10
#: The limit of patterns of LIKE and GLOB, for the same reason.
_MAX_PATTERN_BYTES = 256
#: Steps of SQLite's virtual machine between two checks of the timeout: about a millisecond.
_STEPS_PER_CLOCK_CHECK = 10_000


@contextmanager
def opened(connection: Connection, sql: str, timeout_ms: int, clock: Clock) -> Iterator[SqliteQuery]:
    """
    :raises QueryError: if the statement is wrong, is not a query, or takes too long.
    """
    raw = driver(connection)
    views_read: set[str] = set()
    deadline_ms = clock.monotonic_ms() + timeout_ms
    raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    raw.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _MAX_PATTERN_BYTES)
    authorize = _authorizer(raw, views_read)
    raw.set_authorizer(authorize)
    raw.set_progress_handler(lambda: clock.monotonic_ms() >= deadline_ms, _STEPS_PER_CLOCK_CHECK)
    cursor = raw.cursor()

    def check_time() -> None:
        if clock.monotonic_ms() >= deadline_ms:
            raise too_slow(timeout_ms)

    def declared_types(views: Iterable[str]) -> dict[str, str]:
        raw.set_authorizer(None)  # it refuses PRAGMA; the statement of the user is compiled already
        try:
            return _declared_types(raw, views)
        finally:
            raw.set_authorizer(authorize)

    try:
        cursor.execute(sql)
        columns = [description[0] for description in cursor.description or ()]
        yield SqliteQuery(columns, set(views_read), cursor, check_time, declared_types)
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        raise _sqlite_error(error, timeout_ms) from None
    finally:
        cursor.close()
        raw.set_progress_handler(None, 0)
        raw.set_authorizer(None)


@dataclass(frozen=True)
class SqliteQuery:
    """A statement that SQLite is running; see :class:`~headrace.pipeline.serving.queries.open_query.OpenQuery`."""

    columns: list[str]
    views_read: set[str]
    cursor: sqlite3.Cursor
    check_time: Callable[[], None]
    declared_types: Callable[[Iterable[str]], dict[str, str]]

    def blocks(self) -> Iterator[list[Row]]:
        for block in blocks(self.cursor):
            self.check_time()
            yield block

    def arrow(self) -> ArrowRows:
        from headrace.pipeline.serving.queries.arrow_values import ArrowRows, batch_of, declared_type

        texts = self.declared_types(self.views_read)
        types = [declared_type(texts.get(name, "")) for name in self.columns]
        return ArrowRows(self.columns, types, (batch_of(self.columns, block, types) for block in self.blocks()))


def _declared_types(raw: sqlite3.Connection, views: Iterable[str]) -> dict[str, str]:
    """By the names of columns. A name that several views have with different types is left out."""
    found: dict[str, set[str]] = {}
    for view in views:
        for row in raw.execute("SELECT name, type FROM pragma_table_info(?)", (view,)):
            found.setdefault(row[0], set()).add(row[1])
    return {name: types.pop() for name, types in found.items() if len(types) == 1}


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
