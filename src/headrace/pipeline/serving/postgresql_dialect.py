"""What is particular to PostgreSQL: snapshots and switches, COPY, upserts.

**Snapshots.** In PostgreSQL what a name means is looked up when a statement is parsed, whatever the snapshot of its
transaction: a reader whose snapshot is older than a switch would see the new view over tables as they were before they
were filled. So there is a gate, an empty table ``headrace_gate``. A reader locks it (ACCESS SHARE) before it takes its
snapshot; whoever switches locks it exclusively. LOCK takes no snapshot, so each reader sees all of a switch or nothing.

**Nobody waits for long.** A switch waits for readers that are at work, and new readers wait behind a switch that waits.
So it asks for its locks for 50 ms only, lets the readers through, and asks again, each time for twice as long. It does
that under a savepoint: what its transaction did before is kept.

**COPY.** Arrow writes a table as CSV, a million rows in a quarter of a second, and COPY reads that: no row is touched
by Python. An upsert of many rows goes by COPY through a temporary table; one of few takes arrays as parameters, since a
temporary table for each micro-batch would bloat the system's catalog.

TRUNCATE and COPY FREEZE are not for tables that are read: old snapshots would find them empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
from psycopg import sql
from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, text
from sqlalchemy.exc import OperationalError

from headrace.pipeline.serving.columns import stored
from headrace.pipeline.serving.errors import DatabaseBusy
from headrace.pipeline.serving.sqlite_dialect import on_conflict, quoted

GATE = "headrace_gate"
#: What is done while no reader is inside.
Work = Callable[[], None]
_COPY_FROM_ROWS = 2_000
_ROWS_A_WRITE = 65_536
_ANALYZE_FROM_ROWS = 10_000
_FIRST_LOCK_WAIT_MS = 50
#: Any number will do, as long as all processes take the same.
_CREATION_LOCK = 4_831_002


def open_engine(url: URL, *, read_only: bool) -> Engine:
    """Readers have one snapshot for a whole transaction, and the server lets them change nothing."""
    engine = create_engine(
        url,
        isolation_level="REPEATABLE READ" if read_only else "READ COMMITTED",
        execution_options={"postgresql_readonly": True} if read_only else {},
        pool_pre_ping=True,  # a database that was restarted meanwhile is no error
        pool_size=8,
        max_overflow=24,
        connect_args={"connect_timeout": 10, "application_name": "headrace"},
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: psycopg.Connection, _record: object) -> None:
        # Times are stored and shown in UTC, as SQLite has them.
        was = connection.autocommit
        connection.autocommit = True
        connection.execute("SET TIME ZONE 'UTC'")
        connection.autocommit = was

    @event.listens_for(engine, "reset")
    def _give_back(connection: psycopg.Connection, _record: object, _state: object) -> None:
        # What a user's SELECT locked for the session would otherwise stay locked as long as the pool lives.
        connection.rollback()
        if read_only:
            connection.execute("SELECT pg_advisory_unlock_all()")
            connection.rollback()

    return engine


def driver(connection: Connection) -> psycopg.Connection:
    made = connection.connection.driver_connection
    assert isinstance(made, psycopg.Connection)
    return made


# ---------------------------------------------------------------------------------------------- snapshots, switches


def create_gate(connection: Connection) -> None:
    """CREATE IF NOT EXISTS fails where two do it at once, hence the lock; it also orders whoever makes our tables."""
    connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
    connection.execute(text(f"CREATE TABLE IF NOT EXISTS {GATE} ()"))


def enter_gate(connection: Connection) -> None:
    """The first statement of a transaction that reads."""
    connection.exec_driver_sql(f"LOCK TABLE {GATE} IN ACCESS SHARE MODE")


def with_gate_closed(connection: Connection, work: Work, *, wait_ms: int = 60_000) -> None:
    """Does the work, which takes exclusive locks, while no reader is inside."""
    lock_wait_ms = _FIRST_LOCK_WAIT_MS
    waited_ms = 0
    while True:
        savepoint = connection.begin_nested()
        try:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {lock_wait_ms}")
            connection.exec_driver_sql(f"LOCK TABLE {GATE} IN ACCESS EXCLUSIVE MODE")
            work()
        except OperationalError as error:
            savepoint.rollback()
            if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise
            waited_ms += lock_wait_ms
            if waited_ms >= wait_ms:
                raise DatabaseBusy(
                    f"readers have held a view for {waited_ms} ms, so it was not switched: end their transactions "
                    "(pg_stat_activity shows them) and try again"
                ) from None
            time.sleep(lock_wait_ms / 1000)  # as long as they had to wait for us
            lock_wait_ms *= 2
        else:
            connection.exec_driver_sql("SET LOCAL lock_timeout = DEFAULT")
            savepoint.commit()
            return


# ---------------------------------------------------------------------------------------------------------- loading


def insert(connection: Connection, table: Table, rows: pa.Table, *, update: bool) -> None:
    rows = pa.table({name: stored(rows.column(name), "postgresql") for name in rows.column_names})
    if not update:
        _copy(connection, quoted(table.name), rows)
        if rows.num_rows >= _ANALYZE_FROM_ROWS:
            connection.exec_driver_sql(f"ANALYZE {_escaped(quoted(table.name))}")
        return
    rows = _last_of_each(rows, [column.name for column in table.primary_key])
    if rows.num_rows < _COPY_FROM_ROWS:
        _upsert_arrays(connection, table, rows)
    else:
        _upsert_by_copy(connection, table, rows)


def _copy(connection: Connection, target: str, rows: pa.Table) -> None:
    columns = ", ".join(map(quoted, rows.column_names))
    statement = sql.SQL(f"COPY {target} ({columns}) FROM STDIN (FORMAT csv)")
    with driver(connection).cursor() as cursor, cursor.copy(statement) as copy:
        for start in range(0, rows.num_rows, _ROWS_A_WRITE):
            written = pa.BufferOutputStream()
            pa_csv.write_csv(rows.slice(start, _ROWS_A_WRITE), written, pa_csv.WriteOptions(include_header=False))
            copy.write(memoryview(written.getvalue()))


def _upsert_arrays(connection: Connection, table: Table, rows: pa.Table) -> None:
    """Each column is one array of texts, which PostgreSQL turns into the column's type."""
    names = rows.column_names
    types = _type_names(connection, table)
    arrays = ", ".join(["%s::text[]"] * len(names))
    casts = ", ".join(f"c{at}::{types[name]}" for at, name in enumerate(names))
    given = ", ".join(f"c{at}" for at in range(len(names)))
    statement = (
        _escaped(f"INSERT INTO {quoted(table.name)} ({', '.join(map(quoted, names))}) ")
        + f"SELECT {casts} FROM unnest({arrays}) AS given({given})"
        + _escaped(on_conflict(table, names))
    )
    values = [rows.column(name).cast(pa.string()).to_pylist() for name in names]
    with driver(connection).cursor() as cursor:
        cursor.execute(statement.encode(), values)


def _upsert_by_copy(connection: Connection, table: Table, rows: pa.Table) -> None:
    columns = ", ".join(map(quoted, rows.column_names))
    with driver(connection).cursor() as cursor:
        cursor.execute(
            f"CREATE TEMP TABLE headrace_stage ON COMMIT DROP AS SELECT {columns} FROM {quoted(table.name)} "
            "WITH NO DATA".encode()
        )
        _copy(connection, "headrace_stage", rows)
        cursor.execute(
            f"INSERT INTO {quoted(table.name)} ({columns}) SELECT {columns} FROM headrace_stage "
            f"{on_conflict(table, rows.column_names)}".encode()
        )
        cursor.execute(b"DROP TABLE headrace_stage")


def _last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """PostgreSQL refuses to update a row twice in one statement; the last one wins, as in SQLite."""
    at = rows.append_column("__at", pa.array(range(rows.num_rows), pa.int64()))
    last = at.group_by(list(keys)).aggregate([("__at", "max")])
    return rows if last.num_rows == rows.num_rows else rows.take(last.column("__at_max").sort())


def _type_names(connection: Connection, table: Table) -> dict[str, str]:
    return {column.name: column.type.compile(connection.dialect) for column in table.columns}


def _escaped(text_of_sql: str) -> str:
    """For statements that the driver looks into for parameters."""
    return text_of_sql.replace("%", "%%")
