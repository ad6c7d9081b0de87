"""Runs statements in the serving database: those of visitors, the rows of a view, and what differs between versions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from headrace.console.problems import NotFound
from headrace.console.protection.audit import HIDDEN
from headrace.console.views.model import RowsAsOf, Table
from headrace.console.views.opened import Opened
from headrace.console.views.status import flat_offsets
from headrace.pipeline.serving.catalog import Version
from headrace.pipeline.serving.errors import QueryError
from headrace.pipeline.serving.queries.formats import plain_cell
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.views.answers import AsOf

LONGEST_CELL = 2_000
_CUT = "…"
MOST_DIFFERENCES = 400
_COUNTED_ROWS = 100_000
_COUNT_TIMEOUT_MS = 1_000
_TIMEOUT_MS = 10_000


def run_statement(opened: Opened, sql: str, *, limit: int, timeout_ms: int) -> Table:
    """The first rows of an answer.

    :raises QueryError: if the statement is wrong, would change something, or takes too long.
    """
    found = opened.queries.query(sql, limit=limit, timeout_ms=timeout_ms)
    rows = tuple(tuple(map(_cell, row)) for row in found.rows)
    return Table(tuple(found.columns), rows, found.is_truncated, _as_of(found.as_of))


def _cell(value: object) -> object:
    plain = plain_cell(value)
    return plain[:LONGEST_CELL] + _CUT if isinstance(plain, str) and len(plain) > LONGEST_CELL else plain


def _as_of(found: Iterable[AsOf]) -> tuple[RowsAsOf, ...]:
    return tuple(
        RowsAsOf(each.view, each.version, flat_offsets(each.offsets), each.updated_ms, each.age_ms) for each in found
    )


def masked(table: Table, masks: Collection[str]) -> Table:
    """The table without the values of masked columns, and without texts that have a masked field in JSON."""
    names = {name.lower() for name in masks}
    if not names:
        return table
    hidden = [name.lower() in names for name in table.columns]

    def shown(value: object, is_hidden: bool) -> object:
        text = str(value).lower()
        return HIDDEN if is_hidden or any(f'"{name}"' in text for name in names) else value

    rows = tuple(tuple(map(shown, row, hidden)) for row in table.rows)
    return Table(table.columns, rows, table.is_truncated, table.as_of)


# ------------------------------------------------------------------------------------------------------ rows of a view


def count_rows(opened: Opened, views: Iterable[str]) -> dict[str, int | None]:
    """The rows of views, counted up to 100,000; None if that takes more than a second, or no version serves."""
    found: dict[str, int | None] = {}
    for view in views:
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {quoted(view)} LIMIT {_COUNTED_ROWS}) AS counted"
        try:
            count = opened.queries.query(sql, limit=1, timeout_ms=_COUNT_TIMEOUT_MS).rows[0][0]
            found[view] = count if isinstance(count, int) else None
        except QueryError:
            found[view] = None
    return found


def key_columns(opened: Opened, view: str, version: int) -> tuple[str, ...] | None:
    """The columns that identify a row; None if none are known to."""
    known = opened.queries.key_of(view, version)
    if known is not None:
        return known
    key = opened.here.catalog.version(view, version).definition.get("key")
    return tuple(map(str, key)) if isinstance(key, list) and key else None


def rows_of(opened: Opened, view: str, limit: int) -> Table:
    """The first rows of the version that serves."""
    opened.here.catalog.view(view)
    return run_statement(opened, f"SELECT * FROM {quoted(view)}", limit=limit, timeout_ms=_TIMEOUT_MS)


def row_with_key(opened: Opened, view: str, key: str) -> Table:
    """The rows with a key.

    :param key: a JSON object: the values of the key by column.
    :raises NotFound: if there is no such row.
    """
    opened.here.catalog.view(view)
    conditions = [_condition(name, value) for name, value in read_key(key).items()] or ["1 = 1"]
    sql = f"SELECT * FROM {quoted(view)} WHERE {' AND '.join(conditions)}"
    found = run_statement(opened, sql, limit=2, timeout_ms=_TIMEOUT_MS)
    if not found.rows:
        raise NotFound(f"{view} has no row with this key now")
    return found


def read_key(text: str) -> dict[str, object]:
    """
    :raises NotFound: if the text is no key.
    """
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        raise NotFound("the key is not JSON") from None
    if not isinstance(key, dict):
        raise NotFound("the key is not a JSON object of columns and values")
    return key


def _condition(column: str, value: object) -> str:
    name = quoted(column)
    if value is None:
        return f"{name} IS NULL"
    if isinstance(value, bool):
        return f"{name} = {'TRUE' if value else 'FALSE'}"
    if isinstance(value, int | float):
        return f"{name} = {value!r}"
    # The statement can only read, so a value that is no literal could not change anything either.
    text = str(value).replace("'", "''")
    return f"{name} = '{text}'"


# ---------------------------------------------------------------------------------------------------------- versions


def answer_differences(opened: Opened, left: Version, right: Version) -> Table:
    """The rows that only one of two versions has, of one snapshot. The first column is the number of the version.

    Rows with the same key stand together.

    :raises NotFound: if a version has no rows yet, or the versions have no column in common.
    """
    for each in (left, right):
        if each.select_sql is None:
            raise NotFound(f"{each.label} has no rows yet")
    ours, theirs = (_columns_of(opened, each) for each in (left, right))
    columns = [name for name in ours if name in theirs]
    if not columns:
        raise NotFound(f"{left.label} and {right.label} have no column in common")
    listed = ", ".join(map(quoted, columns))
    sides = [f"SELECT {listed} FROM ({each.select_sql}) AS side_{each.version}" for each in (left, right)]
    known = key_columns(opened, *right.key) or ()
    order = [name for name in known if name in columns] or columns
    sql = (
        f"SELECT * FROM (SELECT {left.version} AS {quoted('version')}, {listed} FROM ({sides[0]} EXCEPT {sides[1]}) "
        f"AS a UNION ALL SELECT {right.version}, {listed} FROM ({sides[1]} EXCEPT {sides[0]}) AS b) AS c "
        f"ORDER BY {', '.join(map(quoted, order))}, 1"
    )
    return run_statement(opened, sql, limit=MOST_DIFFERENCES, timeout_ms=_TIMEOUT_MS)


def _columns_of(opened: Opened, version: Version) -> list[str]:
    sql = f"SELECT * FROM ({version.select_sql}) AS side"
    return opened.queries.query(sql, limit=1, timeout_ms=_TIMEOUT_MS).columns
