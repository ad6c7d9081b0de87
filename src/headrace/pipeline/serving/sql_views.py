"""The SQL views by which readers know Headrace views, and how one is made to mean something else.

``repoint_view`` is part of its caller's transaction, so that the new meaning, the rows that go with it and the catalog
are seen together or not at all; both databases have transactional DDL.
"""

from __future__ import annotations

import re

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
    """From this transaction's commit on the name means this query. Readers see the old one or the new one, whole.

    It belongs at the end of a transaction: in PostgreSQL new readers wait from here on until the commit.
    """
    _check_is_ours(connection, name)
    if connection.dialect.name == "postgresql":
        from headrace.pipeline.serving.postgresql_dialect import replace_view, with_gate_closed

        with_gate_closed(connection, lambda: replace_view(connection, name, select_sql))
        return
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted(name)}")
    connection.exec_driver_sql(f"CREATE VIEW {quoted(name)} AS {select_sql}")
    # SQLite looks at what a view reads only when it is read: better here than in front of a reader.
    connection.exec_driver_sql(f"SELECT * FROM {quoted(name)} LIMIT 0")


def drop_view(connection: Connection, name: str) -> None:
    """Nothing if there is none."""
    _check_is_ours(connection, name)
    if connection.dialect.name == "postgresql":
        from headrace.pipeline.serving import postgresql_dialect

        postgresql_dialect.with_gate_closed(connection, lambda: postgresql_dialect.drop_view(connection, name))
    else:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted(name)}")


def _check_is_ours(connection: Connection, name: str) -> None:
    looked_at = inspect(connection)
    if looked_at.has_table(name) and name not in looked_at.get_view_names():
        raise UnsuitableSchema(f"there is a table {name!r} in the database that is not ours: rename it, or the view")


def drop_table(connection: Connection, name: str) -> None:
    """Nothing if there is none. Readers that are at work on it keep what they see."""
    sql = f"DROP TABLE IF EXISTS {quoted(name)}"
    connection.exec_driver_sql(sql.replace("%", "%%") if connection.dialect.name == "postgresql" else sql)
