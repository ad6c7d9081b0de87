"""For all tests: a busy machine may pause any of them, so Hypothesis times none of its examples.

And a PostgreSQL that really runs, for those that ask for one: ``postgresql`` for all of them, ``mortal_postgresql`` for
one that stops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from headrace.testing.postgresql_process import PostgresqlProcess

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")


@contextmanager
def _running_postgresql() -> Iterator[PostgresqlProcess]:
    from headrace.testing.postgresql_process import PostgresqlMissing, PostgresqlProcess

    try:
        server = PostgresqlProcess()
        server.start()
    except PostgresqlMissing as error:
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlProcess]:
    """One server for all tests that do not stop it."""
    with _running_postgresql() as server:
        yield server


@pytest.fixture
def mortal_postgresql() -> Iterator[PostgresqlProcess]:
    """A server of its own, which the test may kill."""
    with _running_postgresql() as server:
        yield server
