"""One write transaction to which several threads write, one after the other: readers see all of it or nothing.

::

    thread A   part 0: begins the transaction -> writes ----------------------------------> commits -> goes on
    thread B   part 1:     waits ---------------------> writes -> waits -----------------------------> goes on
    thread C   part 2:     waits ---------------------------------> writes -> waits -----------------> goes on

Each part is a savepoint. A part that raises is rolled back, its thread gets the exception, and the other parts are
committed. Everything fails for all threads if the transaction itself fails: the commit, or a rollback to a savepoint.
(After some errors, a full disk for one, SQLite ends the whole transaction. What is written then would be committed at
once, statement by statement, so nothing may be written any more.)

In PostgreSQL another process may hold a lock that a part needs, for as long as it likes. So a part waits for a lock for
a limited time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import ServingError

#: How long a part waits for a lock in PostgreSQL.
LOCK_WAIT_MS = 2_000
_LOCK_NOT_AVAILABLE = "55P03"


class PartTimedOut(ServingError):
    """A part was rolled back because another process held a lock. The other parts are committed."""


class SharedTransaction:
    """
    :param parts: how many threads write. Each calls ``part`` once, with its own number.
    """

    def __init__(self, database: Database, parts: int) -> None:
        self._database, self._parts = database, parts
        self._changed = threading.Condition()
        #: The part that writes; None before the transaction begins.
        self._turn: int | None = None
        self._connection: Connection | None = None
        self._is_over = False
        #: Why nothing is committed.
        self._broken: BaseException | None = None

    @contextmanager
    def part(self, number: int) -> Iterator[Connection]:
        """Lends the transaction. When it returns, everything is committed.

        :raises PartTimedOut: if this part could not get a lock.
        """
        with self._committed() if number == 0 else self._turn_of(number):
            assert self._connection is not None
            with self._savepoint(self._connection) as connection:
                yield connection

    @contextmanager
    def _committed(self) -> Iterator[None]:
        """The transaction around all parts."""
        failure: BaseException | None = None
        try:
            with self._database.begin() as connection:
                if not self._database.is_sqlite:
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                self._connection = connection
                try:
                    yield
                except BaseException as error:  # noqa: BLE001  raised again after the other parts
                    failure = error
                self._give_turns()
                if self._broken is not None:
                    raise self._broken
        except BaseException as error:
            self._broken = error
            raise
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
        if failure is not None:
            raise failure

    def _give_turns(self) -> None:
        for number in range(1, self._parts):
            with self._changed:
                if self._broken is not None:
                    return
                self._turn = number
                self._changed.notify_all()
                while self._turn == number:
                    self._changed.wait()

    @contextmanager
    def _turn_of(self, number: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number or self._is_over)
            if self._is_over:
                self._raise_broken()
        try:
            yield
        finally:
            with self._changed:
                self._turn = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_over)
                if self._broken is not None:
                    self._raise_broken()

    def _raise_broken(self) -> None:
        assert self._broken is not None, "a transaction ends after its last part"
        raise self._broken

    @contextmanager
    def _savepoint(self, connection: Connection) -> Iterator[Connection]:
        savepoint = connection.begin_nested()
        try:
            yield connection
            savepoint.commit()
        except BaseException as error:
            try:
                savepoint.rollback()
            except Exception as broken:  # noqa: BLE001  the whole transaction ends with it
                self._broken = broken
            if connection.invalidated:
                self._broken = self._broken or error
            if _is_lock_timeout(error):
                raise PartTimedOut("another process holds a lock: the micro-batch is repeated") from error
            raise


def _is_lock_timeout(error: BaseException) -> bool:
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", "") == _LOCK_NOT_AVAILABLE
