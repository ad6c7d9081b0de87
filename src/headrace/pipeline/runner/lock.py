"""The lock that allows one runner per serving database: two runners would write the same tables.

For SQLite the lock is on a file beside the database. For PostgreSQL it is an advisory lock of a session. Both end with
the process that holds them, even after ``kill -9``, so nothing has to be cleaned up. PostgreSQL's lock also ends with
the connection: a runner regularly checks that it still has the lock, and takes it again after a restart of the server,
unless another runner was faster.

``is_taken`` checks without taking the lock. Commands use it to see whether a runner will act on what they ask for.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from headrace.pipeline.serving.database_url import parse_url
from headrace.pipeline.serving.errors import DatabaseUnreachable, ServingError

if TYPE_CHECKING:
    import psycopg

#: ``is_taken`` holds the lock for a moment, so a runner keeps trying for longer than that.
_LOCK_WAIT_S = 2.0
_LOCK = "SELECT pg_try_advisory_lock(hashtext('headrace runner'), hashtext(current_schema()))"
_HELD = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid = hashtext('headrace runner')::bigint & 4294967295 "
    "AND objid = hashtext(current_schema())::bigint & 4294967295"
)


class AlreadyRunning(ServingError):
    """Another runner has the lock."""


class RunnerLock(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def keep(self) -> None:
        """
        :raises AlreadyRunning: if the lock was lost and another runner has it.
        :raises DatabaseUnreachable: if the database does not answer.
        """


def runner_lock(url: str) -> RunnerLock:
    """The lock of a database. Entering it as a context manager takes the lock.

    :raises AlreadyRunning: on entering, if another runner has the lock.
    """
    parsed = parse_url(url)
    if parsed.drivername == "sqlite":
        return _FileLock(_lock_file(parsed.database or ""))
    return _AdvisoryLock(parsed.set(drivername="postgresql").render_as_string(hide_password=False))


def is_taken(url: str) -> bool:
    """Whether a runner has the lock."""
    parsed = parse_url(url)
    if parsed.drivername == "sqlite":
        return _FileLock(_lock_file(parsed.database or "")).is_taken()
    lock = _AdvisoryLock(parsed.set(drivername="postgresql").render_as_string(hide_password=False))
    return lock.is_taken()


def _lock_file(database: str) -> Path:
    return Path(f"{database}-runner.lock")


def _succeeds_in_time(attempt: Callable[[], bool]) -> bool:
    until = time.monotonic() + _LOCK_WAIT_S
    while not attempt():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class _FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        if not _succeeds_in_time(lambda: _try_lock(file, fcntl.LOCK_EX)):
            holder = os.read(file, 200).decode(errors="replace").strip()
            os.close(file)
            raise AlreadyRunning(
                f"another 'headrace views run' is running on this project{f' ({holder})' if holder else ''}: "
                "stop it first, because two would write the same tables"
            )
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)  # the file is not removed: another process could lock a new file of the same name
            self._file = None

    def keep(self) -> None:
        """Does nothing: the lock of a file is not lost."""

    def is_taken(self) -> bool:
        try:
            file = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not _try_lock(file, fcntl.LOCK_SH)
        finally:
            os.close(file)


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _AdvisoryLock:
    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None

    def __enter__(self) -> Self:
        self._take(_LOCK_WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Releases the lock before the connection is closed: the server may notice the end of a connection later."""
        import psycopg

        with suppress(psycopg.Error):
            if self._connection is not None:
                self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._close()

    def keep(self) -> None:
        import psycopg

        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
                return
        except psycopg.Error:
            self._close()
        self._take(0)

    def is_taken(self) -> bool:
        with self._connect() as connection:
            row = connection.execute(_HELD.encode()).fetchone()
        connection.close()
        return row is not None and row[0] > 0

    def _take(self, patience_s: float) -> None:
        connection = self._connect()

        def attempt() -> bool:
            row = connection.execute(_LOCK.encode()).fetchone()
            return row is not None and bool(row[0])

        if not (attempt() or (patience_s and _succeeds_in_time(attempt))):
            connection.close()
            raise AlreadyRunning(
                "another 'headrace views run' is running on this serving database: stop it first, because two would "
                "write the same tables"
            )
        self._connection = connection

    def _connect(self) -> psycopg.Connection:
        import psycopg

        try:
            return psycopg.connect(self._url, autocommit=True, connect_timeout=10, application_name="headrace runner")
        except psycopg.OperationalError as error:
            raise DatabaseUnreachable(f"cannot open the serving database: {' '.join(str(error).split())}") from None

    def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
