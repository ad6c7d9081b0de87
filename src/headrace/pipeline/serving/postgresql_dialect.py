"""What is particular to PostgreSQL: snapshots, and switches that readers do not notice.

**Snapshots.** In PostgreSQL what a name means is looked up when a statement is parsed, whatever the snapshot of its
transaction: a reader whose snapshot is older than a switch would see the new view over tables as they were before they
were filled. So there is a gate, an empty table ``headrace_gate``. A reader locks it (ACCESS SHARE) before it takes its
snapshot; whoever switches locks it exclusively. LOCK takes no snapshot, so each reader sees all of a switch or nothing.

**Nobody waits for long.** A switch waits for readers that are at work, and new readers wait behind a switch that waits.
So it asks for its locks for 50 ms only, lets the readers through, and asks again, each time for twice as long. It does
that under a savepoint: what its transaction did before is kept.

TRUNCATE and COPY FREEZE are not for tables that are read: old snapshots would find them empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.pipeline.serving.errors import DatabaseBusy, UnsuitableSchema
from headrace.pipeline.serving.sqlite_dialect import quoted

GATE = "headrace_gate"
#: What is raised when a connection breaks, by us and by SQLAlchemy's users of the driver.
FAILURES = (DBAPIError, psycopg.OperationalError, psycopg.InterfaceError)
#: What is done while no reader is inside.
Work = Callable[[], None]
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
    """Does the work, which takes exclusive locks, while no reader is inside.

    The gate stays closed until the transaction ends, so this belongs at its end.
    """
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


def replace_view(connection: Connection, name: str, select_sql: str) -> None:
    """In place, which keeps grants and the views that read this one; with other columns anew, with the same grants."""
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
            f"other objects of the database depend on the SQL view {name}, which therefore can neither get other "
            f"columns nor be dropped: {detail}; drop them (and create them again afterwards)"
        ) from None
