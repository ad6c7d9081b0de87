"""Staging tables of PostgreSQL: rows that Spark's tasks copy in parallel, and that one transaction makes visible.

::

    headrace_stage_<hash of the table's name>_<batch>_<try>           the rows, without an index
    headrace_stage_<hash of the table's name>_<batch>_<try>_parts     the tasks that have copied their rows
                                                                      (``copy``)

Rows go from the tasks to the database, not through the driver, so the driver's memory does not depend on their number.
The driver creates the stage. In its transaction it brings the rows into the table of the view, in one of two ways:

merge      The staged rows are inserted into the table in the order of their keys; a row with the same key is replaced.
replace    The rows of the table that no staged row replaces are added to the stage, an index is built, and the stage is
           renamed to the table. This is faster if most rows change, because PostgreSQL builds an index several times
           faster than it updates one, and it leaves no dead rows. Renaming waits for readers, as a switch of views
           does. The rows are merged if readers keep it waiting for long, or if a user has added something to the table,
           such as an index.

**What a crash leaves.** Each try has tables of its own, so a task of an earlier try that still runs cannot add rows to
a later one. A crash leaves a stage that nothing uses; the next batch or start of the version drops it. A stage that is
not logged is empty after a crash of the database. Its list of parts is empty too then, so ``check_parts`` raises.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from logging import getLogger
from typing import Any, Protocol
from uuid import uuid4

from sqlalchemy import Connection, CursorResult, Table, text
from sqlalchemy.exc import DBAPIError

from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable, ServingError
from headrace.pipeline.serving.postgresql.copy import ORDER, parts_of
from headrace.pipeline.serving.postgresql.dialect import with_gate_closed
from headrace.pipeline.serving.sqlite.dialect import quoted
from headrace.pipeline.serving.sqlite.loading import on_conflict

logger = getLogger(__name__)
_PREFIX = "headrace_stage_"
#: How long dropping a stage waits for tasks that still write to it.
_DROP_WAIT_MS = 2_000
#: How long ``replace`` waits for readers before the rows are merged instead.
_RENAME_WAIT_MS = 10_000
#: For sorting and for building an index. Settings of one transaction.
_SORT_MEMORY = "128MB"
_INDEX_MEMORY = "256MB"
#: A table with more than this many rows for each changed row is changed in place.
_ROWS_PER_CHANGED_ROW = 2
#: SQLSTATEs: a lock was not free in time, a key is there twice, other objects depend on the table.
_LOCKED, _DUPLICATE, _DEPENDENT = "55P03", "23505", "2BP01"
#: What a user may have added to a table, and would be lost with it.
_ADDITIONS = text(
    "SELECT relhastriggers OR relacl IS NOT NULL OR relrowsecurity OR reloptions IS NOT NULL "
    "OR (SELECT count(*) FROM pg_index WHERE indrelid = pg_class.oid) > 1 "
    "FROM pg_class WHERE oid = to_regclass(quote_ident(:name))"
)
_STAGES = text(
    "SELECT relname FROM pg_class WHERE starts_with(relname, :prefix) AND relkind = 'r' AND pg_table_is_visible(oid) "
    "ORDER BY 1"
)


@dataclass(frozen=True)
class Stage:
    """
    :param table: the table that the rows are for.
    :param is_ordered: whether several rows may have the same key; the last one counts.
    :param is_logged: whether the stage may become the table itself (``replace``).
    """

    name: str
    table: Table
    is_ordered: bool
    is_logged: bool

    @property
    def columns(self) -> str:
        return ", ".join(quoted(column.name) for column in self.table.columns)


def create_stage(database: Database, table: Table, batch_id: int, *, is_ordered: bool, is_logged: bool) -> Stage:
    """Creates an empty stage for the rows of a batch, and drops those that earlier tries have left."""
    drop_stages(database, table.name)
    stage = Stage(f"{_prefix(table.name)}{batch_id}_{uuid4().hex[:8]}", table, is_ordered, is_logged)
    kind = "" if is_logged else "UNLOGGED "
    with database.begin() as connection:
        _run(connection, f"CREATE {kind}TABLE {stage.name} (LIKE {quoted(table.name)})")
        if is_ordered:
            _run(connection, f"ALTER TABLE {stage.name} ADD COLUMN {ORDER} BIGINT NOT NULL")
        parts = f"{parts_of(stage.name)} (part INTEGER PRIMARY KEY, row_count BIGINT NOT NULL)"
        _run(connection, f"CREATE {kind}TABLE {parts}")
    return stage


def drop_stages(database: Database, table_name: str) -> None:
    """Drops all stages of a table. One that a task still writes to stays until the next call."""
    for name in stages(database, table_name):
        try:
            with database.begin() as connection:
                _run(connection, f"SET LOCAL lock_timeout = {_DROP_WAIT_MS}")
                _run(connection, f"DROP TABLE IF EXISTS {name}")
        except DBAPIError as error:
            if _state(error) != _LOCKED:
                raise
            logger.info("the staging table %s is still in use: it is dropped later", name)


def try_to_drop_stages(database: Database, table_name: str) -> None:
    """As ``drop_stages``. If the database does not answer, they stay until the next batch."""
    try:
        drop_stages(database, table_name)
    except (ServingError, DBAPIError) as error:
        logger.info("the staging tables of %s are dropped later: %s", table_name, error)


def stages(database: Database, table_name: str) -> list[str]:
    """The names of all stages of a table, with their lists of parts."""
    with database.read() as connection:
        return [str(name) for (name,) in connection.execute(_STAGES, {"prefix": _prefix(table_name)})]


def _prefix(table_name: str) -> str:
    return f"{_PREFIX}{hashlib.sha256(table_name.encode()).hexdigest()[:12]}_"


# ------------------------------------------------------------------------------------------------------ in the commit


def check_parts(connection: Connection, stage: Stage, parts: int, row_count: int) -> None:
    """Checks that the stage has what the tasks have copied.

    :raises DatabaseUnreachable: if it does not: the database has lost the rows when it crashed.
    """
    listed = f"SELECT count(*), coalesce(sum(row_count), 0) FROM {parts_of(stage.name)}"
    found_parts, found_rows = tuple(_run(connection, listed).one())
    if (found_parts, found_rows) != (parts, row_count):
        raise DatabaseUnreachable(
            f"the staging table {stage.name} has {found_rows} rows of {found_parts} tasks, but {parts} tasks have "
            f"copied {row_count} rows: the database was restarted meanwhile; the batch is computed again"
        )


class ShownTable(Protocol):
    """The SQL view that may show the table."""

    def lock(self) -> None:
        """Locks the view against other writers: they do so before they keep readers out."""

    def repoint(self) -> None:
        """Makes the SQL view show the table that now has the name. Readers are kept out meanwhile."""


def apply_stage(connection: Connection, stage: Stage, row_count: int, shown: ShownTable) -> None:
    """Brings the staged rows into the table.

    :param row_count: how many rows are staged.
    """
    _run(connection, f"SET LOCAL work_mem = '{_SORT_MEMORY}'")
    if stage.is_logged and is_mostly_changed(connection, stage.table, row_count):
        if _replace(connection, stage, shown):
            return
        logger.info("%s is in use, so its rows are changed in place", stage.table.name)
    _merge(connection, stage)


def is_mostly_changed(connection: Connection, table: Table, row_count: int) -> bool:
    """Whether this many changed rows are a large part of the rows of a table."""
    most = row_count * _ROWS_PER_CHANGED_ROW
    some = f"SELECT 1 FROM {quoted(table.name)} LIMIT {most + 1}"
    return bool(_run(connection, f"SELECT count(*) FROM ({some}) AS some_rows").scalar_one() <= most)


def _merge(connection: Connection, stage: Stage) -> None:
    last = f", {ORDER} DESC" if stage.is_ordered else ""
    names = [column.name for column in stage.table.columns]
    _run(
        connection,
        f"INSERT INTO {quoted(stage.table.name)} ({stage.columns}) "
        f'SELECT DISTINCT ON ("_key") {stage.columns} FROM {stage.name} ORDER BY "_key"{last}'
        + on_conflict(stage.table, names),
    )


def _replace(connection: Connection, stage: Stage, shown: ShownTable) -> bool:
    """
    :return: False if that is not possible; nothing has changed then.
    """
    table, old = quoted(stage.table.name), f"{stage.name}_old"
    if connection.execute(_ADDITIONS, {"name": stage.table.name}).scalar_one():
        return False

    def rename() -> None:
        _run(connection, f"ALTER TABLE {table} RENAME TO {old}")
        _run(connection, f"ALTER TABLE {stage.name} RENAME TO {table}")
        shown.repoint()
        _run(connection, f"DROP TABLE {old}")

    savepoint = connection.begin_nested()
    try:
        _add_rest(connection, stage, stage.table.name)
        _add_primary_key(connection, stage)
        shown.lock()
        with_gate_closed(connection, rename, wait_ms=_RENAME_WAIT_MS)
    except DatabaseBusy:
        savepoint.rollback()
        return False
    except DBAPIError as error:
        savepoint.rollback()
        # Texts that differ in Spark may be the same in the database, which cannot store all of them.
        if _state(error) not in (_DUPLICATE, _DEPENDENT):
            raise
        return False
    savepoint.commit()
    return True


class KeysCollide(Exception):
    """Two staged rows have the same key."""


def become_table(connection: Connection, stage: Stage, rest_of: str | None) -> int:
    """Makes the stage the table, which is empty and which nobody reads yet.

    :param rest_of: another table, whose rows are added unless their keys are staged.
    :return: how many rows were added.
    :raises KeysCollide: if a key is there twice.
    """
    _run(connection, f"SET LOCAL work_mem = '{_SORT_MEMORY}'")
    added = 0 if rest_of is None else _add_rest(connection, stage, rest_of)
    try:
        _add_primary_key(connection, stage)
    except DBAPIError as error:
        if _state(error) != _DUPLICATE:
            raise
        raise KeysCollide(stage.table.name) from error
    _run(connection, f"DROP TABLE {quoted(stage.table.name)}")
    _run(connection, f"ALTER TABLE {stage.name} RENAME TO {quoted(stage.table.name)}")
    return added


def _add_rest(connection: Connection, stage: Stage, old_table: str) -> int:
    """Adds the rows of another table whose keys are not staged, and returns their number."""
    _run(connection, f"ANALYZE {stage.name}")
    is_older = f'NOT EXISTS (SELECT 1 FROM {stage.name} AS newer WHERE newer."_key" = older."_key")'
    rest = f"SELECT {stage.columns} FROM {quoted(old_table)} AS older WHERE {is_older}"
    return _run(connection, f"INSERT INTO {stage.name} ({stage.columns}) {rest}").rowcount


def _add_primary_key(connection: Connection, stage: Stage) -> None:
    keys = ", ".join(quoted(column.name) for column in stage.table.primary_key)
    _run(connection, f"SET LOCAL maintenance_work_mem = '{_INDEX_MEMORY}'")
    _run(connection, f"ALTER TABLE {stage.name} ADD PRIMARY KEY ({keys})")
    _run(connection, f"ANALYZE {stage.name}")


def _run(connection: Connection, statement: str) -> CursorResult[Any]:
    return connection.exec_driver_sql(statement.replace("%", "%%"))


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", ""))
