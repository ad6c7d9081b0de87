"""Data tables, and the SQL view by which readers know them.

A data table has the columns of its Arrow schema, ``_key`` (see ``keys``), which is its primary key, and ``_batch_id``,
the batch that last wrote the row. Readers do not use it: they use the SQL view that has the name of the Headrace view.
``repoint_view`` makes that name mean another query. It is part of its caller's transaction, so that the new meaning,
the rows that go with it and the catalog are seen together or not at all; both databases have transactional DDL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import BigInteger, Column, Connection, MetaData, PrimaryKeyConstraint, Table, Text, inspect

from headrace.pipeline.serving import postgresql_dialect
from headrace.pipeline.serving.columns import column_type
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.serving.sqlite_dialect import quoted

__all__ = ["canonical_keys", "check_view_name", "create_table", "data_table", "drop_table", "drop_view",
           "quoted", "repoint_view", "select_all"]  # fmt: skip

#: PostgreSQL cuts longer names off. A view's tables are named after it, with up to thirteen characters more.
_MAX_NAME_BYTES = 63
_MAX_VIEW_NAME_BYTES = 50
_OWN_COLUMNS = ("_key", "_batch_id")


def check_view_name(name: str) -> None:
    """A name that both databases know without quotes, and that is not one of our own tables."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or len(name) > _MAX_VIEW_NAME_BYTES:
        raise UnsuitableSchema(
            f"{name!r} cannot be the name of a view: up to {_MAX_VIEW_NAME_BYTES} of a-z, 0-9 and _, no digit first"
        )
    if name.startswith(("headrace_", "sqlite_", "pg_")):
        raise UnsuitableSchema(f"{name!r} cannot be the name of a view: tables of the system begin so")


def data_table(
    name: str,
    schema: pa.Schema,
    key_columns: Sequence[str],
    *,
    primary_key: Sequence[str] = ("_key",),
    exact_columns: Collection[str] = (),
) -> Table:
    """A table for rows of this schema; it is not created yet.

    :param primary_key: other columns too, where a key has several rows (a Lambda view's spans).
    :param exact_columns: decimals that keep all digits in SQLite (see ``columns``).
    """
    _check_columns(name, schema, key_columns)
    columns = [
        Column(field.name, column_type(field, exact=field.name in exact_columns))
        for field in schema
        if field.name not in _OWN_COLUMNS
    ]
    return Table(
        name,
        MetaData(),
        *columns,
        Column("_key", Text().with_variant(Text(collation="C"), "postgresql"), nullable=False),
        Column("_batch_id", BigInteger, nullable=False),
        PrimaryKeyConstraint(*primary_key),
        sqlite_with_rowid=False,
        info={"key_columns": tuple(key_columns), "schema": schema},
    )


def _check_columns(table: str, schema: pa.Schema, key_columns: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if not name or len(name.encode()) > _MAX_NAME_BYTES or "\x00" in name:
            raise UnsuitableSchema(f"{table}: {name!r} cannot name a column: give it a shorter one with AS")
        if name.lower() in seen:
            raise UnsuitableSchema(f"{table}: two columns are named {name!r} (SQLite ignores case): rename one with AS")
        seen.add(name.lower())
    missing = [name for name in key_columns if name not in schema.names]
    if missing:
        raise UnsuitableSchema(f"{table}: the key column {missing[0]!r} is not among {', '.join(schema.names)}")


def create_table(connection: Connection, table: Table) -> None:
    """Nothing if it is there already."""
    table.create(connection, checkfirst=True)


def drop_table(connection: Connection, name: str) -> None:
    """Nothing if there is none. Readers that are at work on it keep what they see."""
    connection.exec_driver_sql(_driver_sql(connection, f"DROP TABLE IF EXISTS {quoted(name)}"))


def select_all(table: Table) -> str:
    """The query of a view that shows a table as it is, without our own columns."""
    names = [quoted(column.name) for column in table.columns if column.name not in _OWN_COLUMNS]
    return f"SELECT {', '.join(names)} FROM {quoted(table.name)}"


def repoint_view(connection: Connection, name: str, select_sql: str) -> None:
    """From this transaction's commit on the name means this query. Readers see the old one or the new one, whole."""

    def switch() -> None:
        connection.exec_driver_sql(_driver_sql(connection, f"DROP VIEW IF EXISTS {quoted(name)}"))
        connection.exec_driver_sql(_driver_sql(connection, f"CREATE VIEW {quoted(name)} AS {select_sql}"))
        # SQLite looks at what a view reads only when it is read: better here than in front of a reader.
        connection.exec_driver_sql(_driver_sql(connection, f"SELECT * FROM {quoted(name)} LIMIT 0"))

    _switch(connection, name, switch)


def drop_view(connection: Connection, name: str) -> None:
    """Nothing if there is none."""

    def drop() -> None:
        connection.exec_driver_sql(_driver_sql(connection, f"DROP VIEW IF EXISTS {quoted(name)}"))

    _switch(connection, name, drop)


def _switch(connection: Connection, name: str, work: postgresql_dialect.Work) -> None:
    if inspect(connection).has_table(name) and name not in inspect(connection).get_view_names():
        raise UnsuitableSchema(f"there is a table {name!r} in the database that is not ours: rename it, or the view")
    if connection.dialect.name == "postgresql":
        postgresql_dialect.with_gate_closed(connection, work)
    else:
        work()


def _driver_sql(connection: Connection, sql: str) -> str:
    return sql.replace("%", "%%") if connection.dialect.name == "postgresql" else sql
