"""Creates, switches and drops the SQL views that readers use. Each has the name of a Headrace view.

``repoint_view`` is part of the caller's transaction. So readers see the new definition, its rows and the catalog
together or not at all; both databases have transactional DDL.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from sqlalchemy import Connection, text

from headrace.pipeline.serving.errors import UnsuitableSchema
from headrace.pipeline.serving.sqlite.dialect import quoted

#: PostgreSQL cuts names after 63 bytes. The tables of a view have its name and up to thirteen more characters.
_MAX_VIEW_NAME_BYTES = 50
_VIEW = "view"
#: What may have a name in SQLite, which does not distinguish upper from lower case.
_IN_SQLITE = text("SELECT type FROM sqlite_master WHERE lower(name) = :name")
_IN_POSTGRESQL = text(
    "SELECT relkind FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = :name AND nspname = current_schema()"
)
_POSTGRESQL_KINDS = {
    "r": "table", "p": "table", "f": "foreign table", "v": _VIEW, "m": "materialized view", "S": "sequence",
    "i": "index", "I": "index", "c": "type",
}  # fmt: skip


def check_view_name(name: str) -> None:
    """Checks that both databases accept the name without quotes, and that it is not a name of a system table.

    :raises UnsuitableSchema: if not.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or len(name) > _MAX_VIEW_NAME_BYTES:
        raise UnsuitableSchema(
            f"{name!r} cannot be the name of a view: use at most {_MAX_VIEW_NAME_BYTES} of a-z, 0-9 and _, and no "
            "digit first"
        )
    if name.startswith(("headrace_", "sqlite_", "pg_")):
        raise UnsuitableSchema(
            f"{name!r} cannot be the name of a view: names of system tables begin with headrace_, sqlite_ or pg_"
        )
    if _is_keyword(name):
        raise UnsuitableSchema(
            f"{name!r} cannot be the name of a view: it is a word of SQL, so SELECT * FROM {name} would fail or mean "
            "something else; use another word, such as the plural"
        )


def _is_keyword(name: str) -> bool:
    """Whether SQLite or PostgreSQL takes the name for a word of SQL. ``user`` is a function of PostgreSQL."""
    from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS

    if name in RESERVED_WORDS:
        return True
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(f"CREATE VIEW {name} AS SELECT 1")
            connection.execute(f"SELECT * FROM {name}")
        except sqlite3.OperationalError:
            return True
    return False


def repoint_view(connection: Connection, name: str, select_sql: str) -> None:
    """Creates the SQL view, or replaces its SELECT. Readers see the old one or the new one.

    Call it at the end of a transaction: in PostgreSQL new readers wait from here on until the commit.
    """
    _check_is_ours(connection, name)
    if connection.dialect.name == "postgresql":
        from headrace.pipeline.serving.postgresql.dialect import replace_view, with_gate_closed

        with_gate_closed(connection, lambda: replace_view(connection, name, select_sql))
        return
    connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted(name)}")
    connection.exec_driver_sql(f"CREATE VIEW {quoted(name)} AS {select_sql}")
    # SQLite checks the SELECT of a view only when it is read, so it is read here once.
    connection.exec_driver_sql(f"SELECT * FROM {quoted(name)} LIMIT 0")


def drop_view(connection: Connection, name: str) -> None:
    """Drops the SQL view, if it exists."""
    _check_is_ours(connection, name)
    if connection.dialect.name == "postgresql":
        from headrace.pipeline.serving.postgresql import dialect as postgresql_dialect

        postgresql_dialect.with_gate_closed(connection, lambda: postgresql_dialect.drop_view(connection, name))
    else:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted(name)}")


def kind_of(connection: Connection, name: str) -> str | None:
    """``table``, ``view``, ``materialized view`` or what else in the database has this name; None if nothing has."""
    if connection.dialect.name == "postgresql":
        found = connection.scalar(_IN_POSTGRESQL, {"name": name})
        return None if found is None else _POSTGRESQL_KINDS.get(found, "relation")
    found = connection.scalar(_IN_SQLITE, {"name": name})
    return None if found is None else str(found)


def is_view(connection: Connection, name: str) -> bool:
    return kind_of(connection, name) == _VIEW


def check_name_is_free(connection: Connection, name: str) -> None:
    """Checks the name of a view that does not serve, so that nothing with this name is Headrace's.

    :raises UnsuitableSchema: if something has the name.
    """
    if (kind := kind_of(connection, name)) is not None:
        raise UnsuitableSchema(_taken(kind, name))


def _check_is_ours(connection: Connection, name: str) -> None:
    """Checks the name of a view that serves, so that a SQL view with this name is Headrace's."""
    if (kind := kind_of(connection, name)) not in (None, _VIEW):
        raise UnsuitableSchema(_taken(str(kind), name))


def _taken(kind: str, name: str) -> str:
    return f"the database has a {kind} {name!r} that does not belong to Headrace: rename the {kind}, or the view"


def drop_table(connection: Connection, name: str) -> None:
    """Drops a table, if it exists. Active readers still see its rows."""
    sql = f"DROP TABLE IF EXISTS {quoted(name)}"
    connection.exec_driver_sql(sql.replace("%", "%%") if connection.dialect.name == "postgresql" else sql)
