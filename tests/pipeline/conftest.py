"""Both serving databases, for every test that asks for ``database``: SQLite, and a PostgreSQL that really runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest

from headrace.pipeline.serving.database import Database
from headrace.testing.postgresql_process import PostgresqlMissing, PostgresqlProcess

_numbers = count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlProcess]:
    """One server for all tests that do not stop it."""
    try:
        server = PostgresqlProcess()
        server.start()
    except PostgresqlMissing as error:
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture
def postgresql_url(postgresql: PostgresqlProcess) -> str:
    """A schema of its own: as good as an empty database, and made in a millisecond."""
    schema = f"test_{next(_numbers)}"
    with psycopg.connect(postgresql.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{postgresql.url}?options=-csearch_path%3D{schema}"


@pytest.fixture
def sqlite_url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'views.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()
