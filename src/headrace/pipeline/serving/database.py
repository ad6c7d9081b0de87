"""One serving database: its transactions, and writing and reading Arrow tables.

``begin()`` is one write transaction: readers see all of it or nothing. ``read()`` is one snapshot: rows, progress and
the definition of SQL views are all as of the same moment. Both may be used by any thread and by several processes at
once. SQLite has one writer at a time; other writers wait for ``busy_timeout_ms``.

A crash within a transaction leaves the database as it was before the transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy import ColumnElement, Connection, Engine, Table
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.pipeline.serving.database_url import parse_url
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable
from headrace.pipeline.serving.sqlite import dialect as sqlite_dialect

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

DEFAULT_BUSY_TIMEOUT_MS = 60_000
#: Begins a write transaction, as :meth:`Database.begin` does.
Begin: TypeAlias = Callable[[], AbstractContextManager[Connection]]


class Database:
    def __init__(self, url: str, *, busy_timeout_ms: int = DEFAULT_BUSY_TIMEOUT_MS) -> None:
        parsed = parse_url(url)
        self.name = parsed.render_as_string(hide_password=True)  # for messages
        self.is_sqlite = parsed.drivername == "sqlite"
        self._busy_timeout_ms = busy_timeout_ms
        self._is_prepared = False
        self._preparing = threading.Lock()
        # Threads of this process wait here, in order. Otherwise they would poll for SQLite's lock.
        self._writing = threading.Lock()
        self._writer_thread: int | None = None
        self._path = Path(parsed.database or "") if self.is_sqlite else None
        self._failures: tuple[type[Exception], ...] = (OperationalError,)
        if self._path is not None:
            self._writer = sqlite_dialect.open_engine(self._path, read_only=False, busy_timeout_ms=busy_timeout_ms)
            self._reader = sqlite_dialect.open_engine(self._path, read_only=True, busy_timeout_ms=busy_timeout_ms)
        else:
            self._failures = (OperationalError, *_postgresql().FAILURES)
            self._writer = _postgresql().open_engine(parsed, read_only=False)
            self._reader = _postgresql().open_engine(parsed, read_only=True)

    # ------------------------------------------------------------------------------------------------ transactions

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """One write transaction. It is committed at the end, and rolled back if an exception is raised."""
        self._prepare()
        with self._write_lock(), self._connected(self._writer) as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One read-only snapshot."""
        self._prepare()
        with self._connected(self._reader) as connection, connection.begin() as transaction:
            if self.is_sqlite:  # SQLite takes its snapshot at the first read
                connection.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
            else:
                _postgresql().enter_gate(connection)
            yield connection
            transaction.rollback()

    def close(self) -> None:
        self._writer.dispose()
        self._reader.dispose()

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        try:
            connection = engine.connect()
        except DBAPIError as error:
            raise DatabaseUnreachable(f"cannot open the serving database {self.name}: {_reason(error)}") from None
        driver = connection.connection.driver_connection
        with connection:
            try:
                yield connection
            except self._failures as error:
                if "database is locked" in str(error):
                    raise DatabaseBusy(
                        f"another process has been writing to {self.name} for more than "
                        f"{self._busy_timeout_ms} ms: run only one 'headrace views run' per project"
                    ) from error
                if getattr(driver, "closed", False):  # only psycopg's connections have it; SQLite's cannot break
                    raise DatabaseUnreachable(
                        f"the connection to {self.name} broke ({_reason(error)}): the transaction was not committed"
                    ) from error
                raise

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        if not self.is_sqlite:
            yield
            return
        assert self._writer_thread != threading.get_ident(), "write transactions cannot be nested"
        if not self._writing.acquire(timeout=self._busy_timeout_ms / 1000):
            raise DatabaseBusy(
                f"another thread has been writing to {self.name} for {self._busy_timeout_ms} ms; try again later"
            )
        try:
            self._writer_thread = threading.get_ident()
            yield
        finally:
            self._writer_thread = None
            self._writing.release()

    def _prepare(self) -> None:
        with self._preparing:
            if self._is_prepared:
                return
            if self._path is not None:
                sqlite_dialect.prepare_file(self._path)
                with self._connected(self._writer):  # creates the file and its WAL; a read-only connection cannot
                    pass
            else:
                with self._connected(self._writer) as connection, connection.begin():
                    _postgresql().create_gate(connection)
            self._is_prepared = True

    def login(self) -> dict[str, object]:
        """The arguments of ``psycopg.connect`` for processes other than this one. They may contain a password."""
        assert not self.is_sqlite, "SQLite has no login, and only this machine reaches its file"
        _, arguments = self._writer.dialect.create_connect_args(self._writer.url)
        arguments.pop("context", None)  # SQLAlchemy's converters, which cannot be pickled
        return {**arguments, **_postgresql().CONNECT_ARGUMENTS}

    def drop_stages(self, table_name: str) -> None:
        """Drops what a crash has left of rows that Spark's tasks have copied for a table (``postgresql.staging``)."""
        if not self.is_sqlite:
            from headrace.pipeline.serving.postgresql import staging as postgresql_staging

            postgresql_staging.drop_stages(self, table_name)

    # ---------------------------------------------------------------------------------------------------- loading

    def upsert(self, connection: Connection, table: Table, rows: pa.Table, *, batch_id: int | None = None) -> None:
        """Inserts rows, and replaces rows with the same key unless a later batch wrote them.

        ``_key`` and ``_batch_id`` are added if the rows lack them. Of two rows with the same key the last one wins.
        """
        _loading().insert(connection, table, rows, batch_id, update=True)

    def bulk_load(self, connection: Connection, table: Table, rows: pa.Table, *, batch_id: int | None = None) -> None:
        """Inserts rows whose keys do not exist yet, as fast as the database can."""
        _loading().insert(connection, table, rows, batch_id, update=False)

    def fetch(
        self,
        connection: Connection,
        table: Table,
        keys: pa.StringArray | None = None,
        *,
        condition: ColumnElement[bool] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows as Arrow, in the types that they were stored from, with ``_key`` and ``_batch_id``.

        :param keys: only rows with these keys.
        :param condition: only rows for which it holds.
        :param limit: at most this many rows, in the order of the primary key.
        """
        return _loading().fetch(connection, table, keys, condition, limit)


def _postgresql() -> ModuleType:
    from headrace.pipeline.serving.postgresql import dialect as postgresql_dialect

    return postgresql_dialect


def _loading() -> ModuleType:
    """Imported on first use: importing Arrow takes longer than most commands."""
    from headrace.pipeline.serving import loading

    return loading


def _reason(error: Exception) -> str:
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
