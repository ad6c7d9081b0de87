"""Several threads write to one transaction: all of it is committed at once, except for parts that fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from headrace.pipeline.serving import shared_transaction
from headrace.pipeline.serving.errors import DatabaseUnreachable
from headrace.pipeline.serving.shared_transaction import PartTimedOut, SharedTransaction


@pytest.fixture
def rows(database):
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE noted (part INTEGER PRIMARY KEY)"))

    def read() -> list[int]:
        with database.read() as connection:
            return sorted(connection.execute(text("SELECT part FROM noted")).scalars())

    return read


def write(database, works) -> list[object]:
    """Runs each work in a part of one transaction, on a thread of its own.

    :return: what each part raised, or None.
    """
    shared = SharedTransaction(database, len(works))

    def run(number: int) -> object:
        try:
            with shared.part(number) as connection:
                connection.execute(text(f"INSERT INTO noted VALUES ({number})"))
                works[number](connection)
        except Exception as error:  # noqa: BLE001  the test looks at it
            return error
        return None

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, range(len(works))))


def nothing(connection) -> None: ...


def fails(connection) -> None:
    raise ValueError("bad rows")


def fails_in_sql(connection) -> None:
    connection.execute(text("INSERT INTO noted VALUES (0)"))
    connection.execute(text("INSERT INTO noted VALUES (0)"))


def test_readers_see_nothing_before_all_parts_are_written(database, rows):
    def sees_nothing(connection) -> None:
        assert rows() == []

    assert write(database, [sees_nothing] * 3) == [None] * 3
    assert rows() == [0, 1, 2]


@pytest.mark.parametrize("bad", range(3))
def test_a_part_that_fails_does_not_affect_the_others(database, rows, bad):
    raised = write(database, [fails if part == bad else nothing for part in range(3)])
    assert [type(each) for each in raised] == [ValueError if part == bad else type(None) for part in range(3)]
    assert rows() == [part for part in range(3) if part != bad]


def test_a_statement_that_fails_does_not_affect_the_others(database, rows):
    raised = write(database, [nothing, fails_in_sql, nothing])
    assert [each is None for each in raised] == [True, False, True]
    assert rows() == [0, 2]


def test_if_the_transaction_ends_early_nothing_is_written(database, rows):
    """As SQLite does it after some errors, such as a full disk."""

    def ends(connection) -> None:
        connection.exec_driver_sql("ROLLBACK")
        raise ValueError("disk full")

    raised = write(database, [nothing, ends, nothing])
    assert all(raised), raised
    assert rows() == []


def test_if_the_commit_fails_all_threads_get_the_error(database, rows, monkeypatch):
    begin = database.begin

    def breaks():
        class Breaking:
            def __enter__(self):
                self.inner = begin()
                return self.inner.__enter__()

            def __exit__(self, *raised):
                self.inner.__exit__(DatabaseUnreachable, DatabaseUnreachable("gone"), None)
                raise DatabaseUnreachable("gone")

        return Breaking()

    monkeypatch.setattr(database, "begin", breaks)
    raised = write(database, [nothing, nothing])
    assert [type(each) for each in raised] == [DatabaseUnreachable] * 2
    assert rows() == []


def test_if_it_cannot_begin_all_threads_get_the_error(database, rows, monkeypatch):
    def begin():
        raise DatabaseUnreachable("gone")

    monkeypatch.setattr(database, "begin", begin)
    assert [type(each) for each in write(database, [nothing, nothing])] == [DatabaseUnreachable] * 2


def test_a_part_waits_for_a_lock_for_a_limited_time(database, rows, monkeypatch):
    if database.is_sqlite:
        pytest.skip("SQLite has one writer, which has all locks")
    monkeypatch.setattr(shared_transaction, "LOCK_WAIT_MS", 100)
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE locked (one INTEGER)"))
    with database.begin() as other:
        other.execute(text("LOCK TABLE locked"))
        needs_it = lambda connection: connection.execute(text("INSERT INTO locked VALUES (1)"))  # noqa: E731
        raised = write(database, [needs_it, nothing])
    assert isinstance(raised[0], PartTimedOut)
    assert raised[1] is None
    assert rows() == [1]
