"""Reads the rows of a view in batches of Arrow, with the types that its query has.

The database may know less: SQLite stores times and dates as texts, both store structs as JSON. The stored schema of the
version (``serving.catalog_tables.version_columns``) says what they were. Memory holds one batch.

PostgreSQL sends the rows by COPY (``serving.queries.arrow_postgresql``). A decimal is cast to its type there: a view
that adds two tables up has a ``numeric`` of any scale, which would become a float.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection

from headrace.pipeline.export.delta_types import delta_type
from headrace.pipeline.serving.columns import arrow_column
from headrace.pipeline.serving.sqlite.dialect import driver, quoted

_ROWS_PER_BATCH = 20_000


def view_batches(connection: Connection, view: str, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a SQL view, with the columns of ``delta_types.delta_schema``.

    :param schema: the columns of the view, as its query has them.
    """
    if connection.dialect.name == "sqlite":
        return _of_sqlite(connection, view, schema)
    return _of_postgresql(connection, view, schema)


def _of_sqlite(connection: Connection, view: str, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    cursor = driver(connection).execute(f"SELECT {', '.join(map(quoted, schema.names))} FROM {quoted(view)}")
    try:
        while rows := cursor.fetchmany(_ROWS_PER_BATCH):
            columns = zip(*rows, strict=True)
            arrays = [_converted(list(each), field.type) for each, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema.names)
    finally:
        cursor.close()


def _of_postgresql(connection: Connection, view: str, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    from headrace.pipeline.serving.postgresql.dialect import driver as postgresql_driver
    from headrace.pipeline.serving.queries.arrow_postgresql import arrow_rows

    shown = ", ".join(_of_exact_type(field) for field in schema)
    sql = f"SELECT {shown} FROM {quoted(view)}"
    raw = postgresql_driver(connection)
    described = raw.execute(f"{sql} LIMIT 0".encode()).description or ()
    with closing(arrow_rows(raw, sql, list(described), lambda: None).batches) as batches:
        for batch in batches:
            arrays = [_converted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema.names)


def _of_exact_type(field: pa.Field) -> str:
    name = quoted(field.name)
    if pa.types.is_decimal(field.type):
        return f"CAST({name} AS NUMERIC({field.type.precision}, {field.type.scale})) AS {name}"
    return name


def _converted(values: list[object] | pa.Array, kind: pa.DataType) -> pa.Array:
    """
    :param values: as SQLite has them, or as Arrow reads them from PostgreSQL.
    """
    wanted = delta_type(kind)
    if isinstance(values, list):
        has_a_type = pa.types.is_nested(wanted) or not (pa.types.is_string(wanted) or pa.types.is_integer(wanted))
        return arrow_column(values, kind).cast(wanted) if has_a_type else pa.array(values, wanted)
    if pa.types.is_nested(wanted):
        return arrow_column(values.to_pylist(), kind).cast(wanted)
    return values.cast(wanted)
