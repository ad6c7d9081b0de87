"""Reads rows of a SQL view as JSON objects, the same from the view and from the rows that were reported last.

The columns of a view have the types of their database (``serving.columns``). In SQLite a boolean is a number and JSON
is a text, and only the declared type of the column says so. PostgreSQL's ``jsonb`` is read as text: its numbers may
have more digits than a float.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text

from headrace.pipeline.serving.queries.formats import jsonable
from headrace.pipeline.serving.sqlite.dialect import quoted

#: A row as JSON values, by the names of its columns.
Row = Mapping[str, object]

_COLUMNS = text(
    "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
    "WHERE attrelid = to_regclass(quote_ident(:name)) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)


class ViewColumn(NamedTuple):
    """:ivar type: as the database declares it; empty for an expression in SQLite."""

    name: str
    type: str

    @property
    def is_json(self) -> bool:
        return self.type.lower() in ("json", "jsonb")

    def value(self, stored: object) -> object:
        """A value of the database as a JSON value."""
        if stored is None:
            return None
        if self.is_json:
            return json.loads(str(stored))
        if self.type.upper() == "BOOLEAN":
            return bool(stored)
        return jsonable(stored)


def view_columns(connection: Connection, view: str) -> tuple[ViewColumn, ...]:
    """The columns of a SQL view or table; empty if there is none of this name."""
    if connection.dialect.name == "postgresql":
        return tuple(ViewColumn(*row) for row in connection.execute(_COLUMNS, {"name": view}))
    found = connection.exec_driver_sql(f"PRAGMA table_info({quoted(view)})")
    return tuple(ViewColumn(row[1], row[2]) for row in found)


def row_of(columns: Sequence[ViewColumn], values: Sequence[object]) -> dict[str, object]:
    return {column.name: column.value(value) for column, value in zip(columns, values, strict=False)}


def row_text(row: object) -> str:
    """A row or a key as JSON. Equal rows have equal texts, because the order of the columns is kept."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))
