"""Creates the data tables, which contain the rows of views.

A data table has the columns of its Arrow schema, the primary key ``_key`` (see ``keys``), and ``_batch_id``, the batch
that last wrote the row. Readers use the SQL view with the name of the Headrace view instead (``sql_views``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import BigInteger, Column, Connection, MetaData, PrimaryKeyConstraint, Table, Text

from headrace.pipeline.serving.columns import column_type
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.serving.sql_views import check_view_name, drop_table, drop_view, repoint_view
from headrace.pipeline.serving.sqlite.dialect import quoted

__all__ = ["canonical_keys", "check_view_name", "create_table", "data_table", "drop_table", "drop_view",
           "index_name", "quoted", "repoint_view", "select_all"]  # fmt: skip

#: PostgreSQL cuts longer names.
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
    """A table for rows of this schema. It is not created in the database.

    :param primary_key: more columns than ``_key`` if a key has several rows (the spans of a Lambda view).
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


def index_name(table: str, purpose: str) -> str:
    """A name for an index that is short enough, whatever the name of the table."""
    return f"{purpose}_{blake2b(table.encode(), digest_size=12).hexdigest()}"


def _check_columns(table: str, schema: pa.Schema, key_columns: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if not name or len(name.encode()) > _MAX_NAME_BYTES or "\x00" in name:
            raise UnsuitableSchema(
                f"{table}: {name!r} cannot be the name of a column: rename it with AS, to at most "
                f"{_MAX_NAME_BYTES} bytes"
            )
        if name.lower() in seen:
            raise UnsuitableSchema(f"{table}: two columns are named {name!r} (SQLite ignores case): rename one with AS")
        seen.add(name.lower())
    missing = [name for name in key_columns if name not in schema.names]
    if missing:
        raise UnsuitableSchema(
            f"{table}: the key column {missing[0]!r} is not an output column; these are: {', '.join(schema.names)}"
        )


def create_table(connection: Connection, table: Table) -> None:
    """Creates the table, if it does not exist."""
    table.create(connection, checkfirst=True)


def select_all(table: Table) -> str:
    """The SELECT of a view that shows a table without ``_key`` and ``_batch_id``."""
    names = [quoted(column.name) for column in table.columns if column.name not in _OWN_COLUMNS]
    return f"SELECT {', '.join(names)} FROM {quoted(table.name)}"
