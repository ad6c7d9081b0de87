"""Writes Arrow tables to PostgreSQL, with COPY if they are large.

Arrow writes a table as CSV, a million rows in a quarter of a second, and COPY reads it. Python does not touch single
rows. An upsert of many rows uses COPY into a temporary table. An upsert of few rows passes arrays as parameters,
because a temporary table per micro-batch would bloat PostgreSQL's catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from psycopg import sql
from sqlalchemy import Connection, Table

from headrace.pipeline.serving.columns import stored
from headrace.pipeline.serving.postgresql.copy import as_csv
from headrace.pipeline.serving.postgresql.dialect import driver
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.pipeline.serving.sqlite.loading import in_order, on_conflict

_COPY_FROM_ROWS = 2_000
_ROWS_PER_WRITE = 65_536
_ANALYZE_FROM_ROWS = 10_000


def insert(connection: Connection, table: Table, rows: pa.Table, *, update: bool) -> None:
    rows = pa.table({name: stored(rows.column(name), "postgresql") for name in rows.column_names})
    if not update:
        _copy(connection, quoted(table.name), in_order(table, rows))
        if rows.num_rows >= _ANALYZE_FROM_ROWS:
            connection.exec_driver_sql(f"ANALYZE {_escaped(quoted(table.name))}")
        return
    rows = _last_of_each(rows, [column.name for column in table.primary_key])
    if rows.num_rows < _COPY_FROM_ROWS:
        _upsert_arrays(connection, table, rows)
    else:
        _upsert_by_copy(connection, table, rows)


def _copy(connection: Connection, target: str, rows: pa.Table) -> None:
    columns = ", ".join(map(quoted, rows.column_names))
    statement = sql.SQL(f"COPY {target} ({columns}) FROM STDIN (FORMAT csv)")
    with driver(connection).cursor() as cursor, cursor.copy(statement) as copy:
        for start in range(0, rows.num_rows, _ROWS_PER_WRITE):
            copy.write(as_csv(rows.slice(start, _ROWS_PER_WRITE)))


def copy_values(connection: Connection, target: str, types: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Inserts Python values by a binary COPY.

    :param target: the quoted name of the table, with its columns.
    :param types: the names of the columns' types.
    """
    statement = sql.SQL(f"COPY {target} FROM STDIN (FORMAT binary)")
    with driver(connection).cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _upsert_arrays(connection: Connection, table: Table, rows: pa.Table) -> None:
    """Passes each column as one array of texts, which PostgreSQL converts to the type of the column."""
    names = rows.column_names
    types = _type_names(connection, table)
    arrays = ", ".join(["%s::text[]"] * len(names))
    casts = ", ".join(f"c{at}::{types[name]}" for at, name in enumerate(names))
    given = ", ".join(f"c{at}" for at in range(len(names)))
    statement = (
        _escaped(f"INSERT INTO {quoted(table.name)} ({', '.join(map(quoted, names))}) ")
        + f"SELECT {casts} FROM unnest({arrays}) AS given({given})"
        + _escaped(on_conflict(table, names))
    )
    values = [rows.column(name).cast(pa.string()).to_pylist() for name in names]
    with driver(connection).cursor() as cursor:
        cursor.execute(statement.encode(), values)


def _upsert_by_copy(connection: Connection, table: Table, rows: pa.Table) -> None:
    columns = ", ".join(map(quoted, rows.column_names))
    with driver(connection).cursor() as cursor:
        cursor.execute(
            f"CREATE TEMP TABLE headrace_stage ON COMMIT DROP AS SELECT {columns} FROM {quoted(table.name)} "
            "WITH NO DATA".encode()
        )
        _copy(connection, "headrace_stage", in_order(table, rows))
        cursor.execute(
            f"INSERT INTO {quoted(table.name)} ({columns}) SELECT {columns} FROM headrace_stage "
            f"{on_conflict(table, rows.column_names)}".encode()
        )
        cursor.execute(b"DROP TABLE headrace_stage")


def _last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key: PostgreSQL refuses to update a row twice in one statement.

    The last one wins, as in SQLite.
    """
    at = rows.append_column("__at", pa.array(range(rows.num_rows), pa.int64()))
    last = at.group_by(list(keys)).aggregate([("__at", "max")])
    return rows if last.num_rows == rows.num_rows else rows.take(last.column("__at_max").sort())


def _type_names(connection: Connection, table: Table) -> dict[str, str]:
    return {column.name: column.type.compile(connection.dialect) for column in table.columns}


def _escaped(text_of_sql: str) -> str:
    """Escapes % in a statement in which the driver searches for parameters."""
    return text_of_sql.replace("%", "%%")
