"""Data tables: what holds the rows of a view.

A data table has the columns of its Arrow schema, ``_key`` (see ``keys``), which is its primary key, and ``_batch_id``,
the batch that last wrote the row. Readers do not use it: they use the SQL view that has the name of the Headrace view
(``sql_views``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import BigInteger, Column, Connection, MetaData, PrimaryKeyConstraint, Table, Text

from headrace.pipeline.serving.columns import column_type
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.serving.sql_views import check_view_name, drop_table, drop_view, repoint_view
from headrace.pipeline.serving.sqlite_dialect import quoted

__all__ = ["canonical_keys", "check_view_name", "create_table", "data_table", "drop_table", "drop_view",
           "quoted", "repoint_view", "select_all"]  # fmt: skip

#: PostgreSQL cuts longer names off.
_MAX_NAME_BYTES = 63
_OWN_COLUMNS = ("_key", "_batch_id")


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


def select_all(table: Table) -> str:
    """The query of a view that shows a table as it is, without our own columns."""
    names = [quoted(column.name) for column in table.columns if column.name not in _OWN_COLUMNS]
    return f"SELECT {', '.join(names)} FROM {quoted(table.name)}"
