"""Fixtures: ``database`` (SQLite and a real PostgreSQL, each test runs with both), ``spark``, ``kafka``.

``spark`` is a session with the data source ``headrace``. ``kafka`` is a Headrace broker, or with
``HEADRACE_TEST_KAFKA=host:port`` a broker that already runs and has none of the tests' topics.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

from headrace import Broker
from headrace.pipeline.serving.database import Database
from headrace.testing.postgresql_process import PostgresqlProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How many sessions of Spark the workers of pytest-xdist share.
SPARK_GROUPS = 2
_numbers = count()
_SPARK_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "20s",
    # What a test runs is over before the second compiler has paid off, and it takes one of two cores.
    # The code cache is then only 48 MiB, and Java stops compiling when it is full.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=200m -XX:+UseSerialGC",
}


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests on Spark go to few workers of pytest-xdist: a session takes seconds to start, and a gigabyte.

    Every worker of pytest-xdist collects the tests in the same order, so all of them divide the modules alike.
    """
    with_spark = [item for item in items if "spark" in getattr(item, "fixturenames", ())]
    modules = sorted({item.nodeid.partition("::")[0] for item in with_spark})
    for item in with_spark:
        number = modules.index(item.nodeid.partition("::")[0]) % SPARK_GROUPS
        item.add_marker(pytest.mark.xdist_group(f"spark-{number}"))


class Kafka(NamedTuple):
    bootstrap_servers: str


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    if other := os.environ.get("HEADRACE_TEST_KAFKA"):
        yield Kafka(other)
        return
    with Broker() as broker:
        yield Kafka(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests that ask for it."""
    from pyspark.sql import SparkSession

    from headrace.pipeline import register

    builder = SparkSession.builder.master("local[2]").appName("headrace tests")
    for name, value in _SPARK_CONF.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def _tables_end_with_their_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """The modules share a session: a table that one module leaves behind would be known to the next."""
    yield
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        for table in session.catalog.listTables():
            session.catalog.dropTempView(table.name)
