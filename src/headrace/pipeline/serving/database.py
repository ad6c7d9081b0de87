"""One serving database: its transactions, and Arrow tables into and out of it.

``begin()`` is one write transaction: all of it is seen, or nothing. ``read()`` is one snapshot: whatever is read within
it belongs to the same moment, rows, progress and what a view means. Both may be used from any thread, and by several
processes at once; SQLite has one writer at a time, and the others wait for ``busy_timeout_ms``.

After a crash in the middle of a transaction the database is as it was before it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, Engine, Table
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.pipeline.serving import sqlite_dialect
from headrace.pipeline.serving.database_url import parse_url
from headrace.pipeline.serving.errors import DatabaseBusy, DatabaseUnreachable

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

DEFAULT_BUSY_TIMEOUT_MS = 60_000


class Database:
    def __init__(self, url: str, *, busy_timeout_ms: int = DEFAULT_BUSY_TIMEOUT_MS) -> None:
        parsed = parse_url(url)
        self.name = parsed.render_as_string(hide_password=True)  # for messages
        self.is_sqlite = parsed.drivername == "sqlite"
        self._busy_timeout_ms = busy_timeout_ms
        self._is_prepared = False
        self._preparing = threading.Lock()
        # Threads of one process take turns here, in order; left to SQLite they would poll for its lock.
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
        """One write transaction; it is committed at the end, and rolled back if anything is raised."""
        self._prepare()
        with self._a_turn(), self._connected(self._writer) as connection, connection.begin():
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One snapshot, in which nothing can be changed."""
        self._prepare()
        with self._connected(self._reader) as connection, connection.begin() as transaction:
            if self.is_sqlite:  # whose snapshot is that of the first read
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
                        f"another process has been writing to {self.name} for more than {self._busy_timeout_ms} ms: "
                        "one 'headrace views run' a project is enough"
                    ) from error
                if getattr(driver, "closed", False):  # psycopg's connections know; SQLite's are not lost
                    raise DatabaseUnreachable(
                        f"the connection to {self.name} broke ({_reason(error)}): what was not committed is not there"
                    ) from error
                raise

    @contextmanager
    def _a_turn(self) -> Iterator[None]:
        if not self.is_sqlite:
            yield
            return
        assert self._writer_thread != threading.get_ident(), "a write transaction inside of another one"
        if not self._writing.acquire(timeout=self._busy_timeout_ms / 1000):
            raise DatabaseBusy(f"another thread has been writing to {self.name} for {self._busy_timeout_ms} ms")
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
                with self._connected(self._writer):  # makes the file and its WAL, which a reader could not
                    pass
            else:
                with self._connected(self._writer) as connection, connection.begin():
                    _postgresql().create_gate(connection)
            self._is_prepared = True

    # ---------------------------------------------------------------------------------------------------- loading

    def upsert(self, connection: Connection, table: Table, rows: pa.Table, *, batch_id: int | None = None) -> None:
        """Inserts rows, or replaces those with the same key, unless a later batch wrote them.

        ``_key`` and ``_batch_id`` are added where the rows have none. The last of two rows with the same key wins.
        """
        _loading().insert(connection, table, rows, batch_id, update=True)

    def bulk_load(self, connection: Connection, table: Table, rows: pa.Table, *, batch_id: int | None = None) -> None:
        """Inserts rows whose keys are not there yet, as fast as the database can."""
        _loading().insert(connection, table, rows, batch_id, update=False)

    def replace_all(self, connection: Connection, table: Table, rows: pa.Table, *, batch_id: int | None = None) -> None:
        """These rows and no others. By DELETE: readers with an older snapshot keep what they see."""
        connection.execute(table.delete())
        _loading().insert(connection, table, rows, batch_id, update=True)

    def delete_keys(self, connection: Connection, table: Table, keys: pa.StringArray) -> None:
        _loading().delete_keys(connection, table, keys)

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

        :param keys: only the rows with these.
        :param condition: only the rows for which it holds.
        :param limit: only so many, in the order of the primary key.
        """
        return _loading().fetch(connection, table, keys, condition, limit)


def _postgresql() -> ModuleType:
    from headrace.pipeline.serving import postgresql_dialect

    return postgresql_dialect


def _loading() -> ModuleType:
    """Imported when it is needed: Arrow takes longer to load than most commands to run."""
    from headrace.pipeline.serving import loading

    return loading


def _reason(error: Exception) -> str:
    return " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
