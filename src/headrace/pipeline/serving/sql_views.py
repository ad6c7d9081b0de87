"""The SQL views by which readers know Headrace views, and how one is made to mean something else.

``repoint_view`` is part of its caller's transaction, so that the new meaning, the rows that go with it and the catalog
are seen together or not at all; both databases have transactional DDL.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlalchemy import Connection, inspect

from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.sqlite_dialect import quoted

#: PostgreSQL cuts names off after 63 bytes. A view's tables are named after it, with up to thirteen characters more.
_MAX_VIEW_NAME_BYTES = 50


def check_view_name(name: str) -> None:
    """A name that both databases know without quotes, and that is not one of our own tables."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or len(name) > _MAX_VIEW_NAME_BYTES:
        raise UnsuitableSchema(
            f"{name!r} cannot be the name of a view: up to {_MAX_VIEW_NAME_BYTES} of a-z, 0-9 and _, no digit first"
        )
    if name.startswith(("headrace_", "sqlite_", "pg_")):
        raise UnsuitableSchema(f"{name!r} cannot be the name of a view: tables of the system begin so")


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


def _switch(connection: Connection, name: str, work: Callable[[], None]) -> None:
    if inspect(connection).has_table(name) and name not in inspect(connection).get_view_names():
        raise UnsuitableSchema(f"there is a table {name!r} in the database that is not ours: rename it, or the view")
    if connection.dialect.name == "postgresql":
        from headrace.pipeline.serving.postgresql_dialect import with_gate_closed

        with_gate_closed(connection, work)
    else:
        work()


def drop_table(connection: Connection, name: str) -> None:
    """Nothing if there is none. Readers that are at work on it keep what they see."""
    connection.exec_driver_sql(_driver_sql(connection, f"DROP TABLE IF EXISTS {quoted(name)}"))


def _driver_sql(connection: Connection, sql: str) -> str:
    return sql.replace("%", "%%") if connection.dialect.name == "postgresql" else sql
