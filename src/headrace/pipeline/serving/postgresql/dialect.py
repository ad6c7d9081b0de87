"""The PostgreSQL side of the serving database: snapshots, and switches of views that do not disturb readers.

**Snapshots.** PostgreSQL looks up the definition of a view when it parses a statement, independent of the snapshot of
the transaction. A reader whose snapshot is older than a switch would read the new view over tables that are still empty
in its snapshot. So there is a gate: an empty table ``headrace_gate``. A reader locks it in ACCESS SHARE mode before it
takes its snapshot; a switch locks it exclusively. LOCK takes no snapshot, so each reader sees all of a switch or
nothing.

**Short waits.** A switch waits for active readers, and new readers wait behind a switch that waits. So a switch waits
for its locks for 50 ms only, lets the readers continue, and tries again, each time for twice as long. Each try is in a
savepoint, so the transaction keeps what it did before.

TRUNCATE and COPY FREEZE must not be used on tables that are read: older snapshots would find them empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from headrace.pipeline.serving.errors import DatabaseBusy, UnsuitableSchema
from headrace.pipeline.serving.sqlite.dialect import quoted

GATE = "headrace_gate"
#: The exceptions for a broken connection, raised by SQLAlchemy or by the driver itself.
FAILURES = (DBAPIError, psycopg.OperationalError, psycopg.InterfaceError)
#: The work of a switch, done while the gate is locked exclusively.
Work = Callable[[], None]
#: Arguments of ``psycopg.connect`` that the URL does not contain.
CONNECT_ARGUMENTS = {"connect_timeout": 10, "application_name": "headrace"}
_FIRST_LOCK_WAIT_MS = 50
#: An arbitrary number that all processes share.
_CREATION_LOCK = 4_831_002


def open_engine(url: URL, *, read_only: bool) -> Engine:
    """Opens an engine. Readers have one snapshot per transaction, and the server lets them change nothing."""
    engine = create_engine(
        url,
        isolation_level="REPEATABLE READ" if read_only else "READ COMMITTED",
        execution_options={"postgresql_readonly": True} if read_only else {},
        pool_pre_ping=True,  # so that a restart of the database causes no error
        pool_size=8,
        max_overflow=24,
        connect_args=CONNECT_ARGUMENTS,
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: psycopg.Connection, _record: object) -> None:
        # Times are stored and shown in UTC, as in SQLite.
        was = connection.autocommit
        connection.autocommit = True
        connection.execute("SET TIME ZONE 'UTC'")
        connection.autocommit = was

    @event.listens_for(engine, "reset")
    def _give_back(connection: psycopg.Connection, _record: object, _state: object) -> None:
        # Otherwise advisory locks that a user's SELECT took for the session would stay locked in the pool.
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
    """Creates the gate. CREATE IF NOT EXISTS fails if two processes run it at once, hence the advisory lock.

    The lock is held until the transaction ends, so it also orders processes that create the tables of the catalog.
    """
    connection.execute(text(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})"))
    connection.execute(text(f"CREATE TABLE IF NOT EXISTS {GATE} ()"))


def enter_gate(connection: Connection) -> None:
    """Locks the gate for reading. Must be the first statement of a transaction that reads."""
    connection.exec_driver_sql(f"LOCK TABLE {GATE} IN ACCESS SHARE MODE")


def with_gate_closed(connection: Connection, work: Work, *, wait_ms: int = 60_000) -> None:
    """Does the work while the gate is locked exclusively, so that there are no active readers.

    The gate stays locked until the transaction ends, so call this at its end.

    :raises DatabaseBusy: if readers hold their locks for too long.
    """
    lock_wait_ms = _FIRST_LOCK_WAIT_MS
    waited_ms = 0
    while True:
        savepoint = connection.begin_nested()
        try:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {lock_wait_ms}")
            connection.exec_driver_sql(f"LOCK TABLE {GATE} IN ACCESS EXCLUSIVE MODE")
            work()
        except DBAPIError as error:
            savepoint.rollback()
            if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                raise
            waited_ms += lock_wait_ms
            if waited_ms >= wait_ms:
                raise DatabaseBusy(
                    f"transactions of readers have been open for {waited_ms} ms, so the view was not "
                    "switched: end them (pg_stat_activity shows them) and try again"
                ) from None
            time.sleep(lock_wait_ms / 1000)  # as long as readers had to wait
            lock_wait_ms *= 2
        else:
            connection.exec_driver_sql("SET LOCAL lock_timeout = DEFAULT")
            savepoint.commit()
            return


def replace_view(connection: Connection, name: str, select_sql: str) -> None:
    """Replaces a view in place, which keeps its grants and the views that depend on it.

    If its columns differ, the view is dropped and created again with the same grants.
    """
    quoted_name = quoted(name).replace("%", "%%")
    meaning = f"{quoted_name} AS {select_sql.replace('%', '%%')}"
    savepoint = connection.begin_nested()
    try:
        connection.exec_driver_sql(f"CREATE OR REPLACE VIEW {meaning}")
        savepoint.commit()
        return
    except DBAPIError as error:
        savepoint.rollback()
        if not isinstance(error.orig, psycopg.errors.InvalidTableDefinition):
            raise
    grants = connection.execute(_GRANTS, {"name": name}).fetchall()
    drop_view(connection, name)
    connection.exec_driver_sql(f"CREATE VIEW {meaning}")
    for privilege, grantee in grants:
        connection.exec_driver_sql(f"GRANT {privilege} ON {quoted_name} TO {grantee}")


_GRANTS = text(
    "SELECT privilege_type, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END "
    "FROM pg_class, aclexplode(relacl) WHERE oid = to_regclass(quote_ident(:name)) AND grantee <> relowner"
)


def drop_view(connection: Connection, name: str) -> None:
    try:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {quoted(name)}".replace("%", "%%"))
    except DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.DependentObjectsStillExist):
            raise
        detail = " ".join((error.orig.diag.message_detail or "").split("\n"))
        raise UnsuitableSchema(
            f"other objects of the database depend on the SQL view {name}, so its columns cannot change and it "
            f"cannot be dropped: {detail}; drop them first, and create them again afterwards"
        ) from None
