"""Writes Arrow tables to a database and reads them back: the parts that both databases share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
import sqlalchemy
from sqlalchemy import Connection, Table

from headrace.pipeline.serving.columns import arrow_column
from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.serving.sqlite import loading as sqlite_loading

_KEYS_PER_STATEMENT = 50_000


def insert(connection: Connection, table: Table, rows: pa.Table, batch_id: int | None, *, update: bool) -> None:
    """See ``Database.upsert`` and ``Database.bulk_load``."""
    rows = _completed(table, rows, batch_id)
    if rows.num_rows == 0:
        return
    if connection.dialect.name == "sqlite":
        sqlite_loading.insert(connection, table, rows, update=update)
    else:
        from headrace.pipeline.serving.postgresql import loading as postgresql_loading

        postgresql_loading.insert(connection, table, rows, update=update)


def fetch(
    connection: Connection,
    table: Table,
    keys: pa.StringArray | None,
    condition: sqlalchemy.ColumnElement[bool] | None = None,
    limit: int | None = None,
) -> pa.Table:
    # Values as the driver returns them: SQLAlchemy would parse times one by one.
    columns = [
        sqlalchemy.type_coerce(column, sqlalchemy.types.NullType()).label(column.name) for column in table.columns
    ]
    query = sqlalchemy.select(*columns)
    if condition is not None:
        query = query.where(condition)
    if limit is not None:
        query = query.order_by(*table.primary_key).limit(limit)
    queries = [query] if keys is None else [query.where(clause) for clause in _in_portions(connection, table, keys)]
    schema = _schema_of(table)
    portions = [_to_arrow(connection.execute(each).fetchall(), schema) for each in queries]
    return pa.concat_tables([schema.empty_table(), *portions])


def _schema_of(table: Table) -> pa.Schema:
    known = {field.name: field.type for field in table.info["schema"]} | {"_key": pa.string(), "_batch_id": pa.int64()}
    return pa.schema([(column.name, known[column.name]) for column in table.columns])


def _to_arrow(rows: Sequence[Sequence[object]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    return pa.table(
        [arrow_column(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _completed(table: Table, rows: pa.Table, batch_id: int | None) -> pa.Table:
    """The rows with ``_key`` and ``_batch_id`` added."""
    if "_key" not in rows.column_names:
        rows = rows.append_column("_key", canonical_keys(rows, table.info["key_columns"]))
    if "_batch_id" not in rows.column_names:
        rows = rows.append_column("_batch_id", pa.repeat(pa.scalar(batch_id or 0, pa.int64()), rows.num_rows))
    wanted = {column.name for column in table.columns}
    if wanted != set(rows.column_names):
        different = ", ".join(sorted(wanted ^ set(rows.column_names)))
        raise UnsuitableSchema(f"the rows and the table {table.name} have different columns: {different}")
    return rows


def _in_portions(
    connection: Connection, table: Table, keys: pa.StringArray
) -> Iterator[sqlalchemy.ColumnElement[bool]]:
    """Conditions for portions of the keys. Each has one parameter, however many keys it has."""
    texts = keys.to_pylist()
    for start in range(0, len(texts), _KEYS_PER_STATEMENT):
        portion = texts[start : start + _KEYS_PER_STATEMENT]
        if connection.dialect.name == "postgresql":
            array = sqlalchemy.bindparam(None, portion, type_=sqlalchemy.ARRAY(sqlalchemy.Text()))
            yield table.c["_key"] == sqlalchemy.any_(array)
        else:
            listed = sqlalchemy.func.json_each(json.dumps(portion)).table_valued("value")
            yield table.c["_key"].in_(sqlalchemy.select(listed.c.value))
