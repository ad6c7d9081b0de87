"""Stores the columns of a version, and which of them identify a row, for those who follow or export a view."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table, select

from headrace.pipeline.serving.catalog_tables.versions import VersionKey
from headrace.pipeline.serving.change_tables import OF_COLUMNS, VERSION_KEYS, VERSION_SCHEMAS
from headrace.pipeline.serving.database import Database

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


def set_columns(database: Database, version: VersionKey, key: Sequence[str] | None, schema: pa.Schema) -> None:
    """
    :param key: empty if there is only one row; None if no columns are known to identify a row.
    :param schema: has the columns of the query, with their types.
    """
    stored_key = None if key is None else json.dumps(list(key))
    stored_schema = base64.b64encode(schema.remove_metadata().serialize()).decode()
    with database.read() as reader:
        if (_stored(reader, VERSION_KEYS, "columns", version), _stored(reader, VERSION_SCHEMAS, "schema", version)) == (
            stored_key,
            stored_schema,
        ):
            return
    view, number = version
    of_version = {"view": view, "version": number}
    with database.begin() as connection:
        for table in OF_COLUMNS:
            connection.execute(table.delete().where(table.c.view == view, table.c.version == number))
        if stored_key is not None:
            connection.execute(VERSION_KEYS.insert().values(**of_version, columns=stored_key))
        connection.execute(VERSION_SCHEMAS.insert().values(**of_version, schema=stored_schema))


def key_of(connection: Connection, version: VersionKey) -> tuple[str, ...] | None:
    found = _stored(connection, VERSION_KEYS, "columns", version)
    return None if found is None else tuple(json.loads(found))


def schema_of(connection: Connection, version: VersionKey) -> pa.Schema | None:
    """The columns of the version's query; None if only an earlier release of Headrace has started the version."""
    import pyarrow as pa

    found = _stored(connection, VERSION_SCHEMAS, "schema", version)
    return None if found is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found)))


def _stored(connection: Connection, table: Table, column: str, version: VersionKey) -> str | None:
    view, number = version
    query = select(table.c[column]).where(table.c.view == view, table.c.version == number)
    found: str | None = connection.execute(query).scalar_one_or_none()
    return found
