"""PostgreSQL drivers at a switch that changes columns: what ``docs/serving.md`` promises, with the drivers themselves.

A prepared statement of PostgreSQL has result columns that never change. A statement that names its columns survives a
switch; ``SELECT *`` survives with the settings that the guide names. Without them the outcome depends on the driver.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from test_serving_switch import Readers

from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.postgresql.dialect import GATE
from headrace.pipeline.serving.queries.query import QueryService
from headrace.pipeline.serving.tables import repoint_view

STAR = "SELECT * FROM pages"
NAMED = "SELECT page, version FROM pages"
#: What the view is in turn: a column more, one less and in another order, and another type for a column.
COLUMNS = ("page, version", "page, version, 'x'::text AS more", "version, page", "version, page, 1.5::float8 AS more")
ROWS = 40


class Driver:
    """One connection or pool of an ordinary driver, which knows nothing of Headrace."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self.plain_url = f"{address.netloc}{address.path}"
        self.options = parse_qs(address.query)["options"][0]
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def read(self, sql: str) -> list[tuple[object, ...]]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Psycopg(Driver):
    settings: ClassVar[dict[str, object]] = {}
    is_autocommit = True

    def open(self) -> None:
        url = f"postgresql://{self.plain_url}"
        self.connection = psycopg.connect(url, options=self.options, autocommit=self.is_autocommit, **self.settings)

    def read(self, sql: str) -> list[tuple[object, ...]]:
        if self.is_autocommit:
            return self.connection.execute(sql).fetchall()
        with self.connection.transaction():
            return self.connection.execute(sql).fetchall()

    def close(self) -> None:
        self.connection.close()


class PsycopgUnprepared(Psycopg):
    settings: ClassVar[dict[str, object]] = {"prepare_threshold": None}


class PsycopgInTransactions(Psycopg):
    is_autocommit = False


class PsycopgUnpreparedInTransactions(PsycopgUnprepared):
    is_autocommit = False


class SqlalchemyPsycopg(Driver):
    settings: ClassVar[dict[str, object]] = {}
    isolation = "READ COMMITTED"

    def open(self) -> None:
        connect = {"options": self.options, **self.settings}
        url = f"postgresql+psycopg://{self.plain_url}"
        self.engine = sqlalchemy.create_engine(url, isolation_level=self.isolation, connect_args=connect)

    def read(self, sql: str) -> list[tuple[object, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sqlalchemy.text(sql))]

    def close(self) -> None:
        self.engine.dispose()


class SqlalchemyPsycopgAutocommit(SqlalchemyPsycopg):
    isolation = "AUTOCOMMIT"


class SqlalchemyPsycopgUnprepared(SqlalchemyPsycopgAutocommit):
    settings: ClassVar[dict[str, object]] = {"prepare_threshold": None}


class Asyncpg(Driver):
    settings: ClassVar[dict[str, object]] = {}
    in_transaction = False

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.connection = self.loop.run_until_complete(self._connect())

    async def _connect(self) -> asyncpg.Connection:
        found = {"options": self.options}
        return await asyncpg.connect(f"postgresql://{self.plain_url}", server_settings=found, **self.settings)

    def read(self, sql: str) -> list[tuple[object, ...]]:
        return self.loop.run_until_complete(self._read(sql))

    async def _read(self, sql: str) -> list[tuple[object, ...]]:
        if not self.in_transaction:
            return [tuple(row) for row in await self.connection.fetch(sql)]
        async with self.connection.transaction():
            return [tuple(row) for row in await self.connection.fetch(sql)]

    def close(self) -> None:
        self.loop.run_until_complete(self.connection.close())
        self.loop.close()


class AsyncpgInTransactions(Asyncpg):
    in_transaction = True


class AsyncpgUncached(Asyncpg):
    settings: ClassVar[dict[str, object]] = {"statement_cache_size": 0}


class AsyncpgUncachedInTransactions(AsyncpgUncached):
    in_transaction = True


class SqlalchemyAsyncpg(Driver):
    parameters = ""

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        url = f"postgresql+asyncpg://{self.plain_url}{self.parameters}"
        self.engine = create_async_engine(url, connect_args={"server_settings": {"options": self.options}})

    def read(self, sql: str) -> list[tuple[object, ...]]:
        return self.loop.run_until_complete(self._read(sql))

    async def _read(self, sql: str) -> list[tuple[object, ...]]:
        async with self.engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(sqlalchemy.text(sql))]

    def close(self) -> None:
        self.loop.run_until_complete(self.engine.dispose())
        self.loop.close()


class SqlalchemyAsyncpgUncached(SqlalchemyAsyncpg):
    parameters = "?prepared_statement_cache_size=0"


#: By the outcome of SELECT * on a connection that has prepared the statement, when a switch changes the columns.
NEVER_FAIL = (
    PsycopgUnprepared, PsycopgUnpreparedInTransactions, SqlalchemyPsycopg, SqlalchemyPsycopgUnprepared,
    Asyncpg, AsyncpgUncached, AsyncpgUncachedInTransactions, SqlalchemyAsyncpgUncached,
)  # fmt: skip
FAIL_ONCE = (PsycopgInTransactions, AsyncpgInTransactions, SqlalchemyAsyncpg)
FAIL_UNTIL_RECONNECTED = (Psycopg, SqlalchemyPsycopgAutocommit)


class DriverHarness:
    def __init__(self, url: str) -> None:
        self.url = url
        self.database = Database(url)
        Catalog(self.database)
        self.version = 0
        self._columns = cycle(COLUMNS)
        self._drivers: list[Driver] = []

    def switch(self) -> None:
        """To a version with other columns than the last one."""
        self.version += 1
        rows = f"SELECT 'page ' || n AS page, {self.version} AS version FROM generate_series(1, {ROWS}) AS n"
        with self.database.begin() as connection:
            repoint_view(connection, "pages", f"SELECT {next(self._columns)} FROM ({rows}) AS made")

    def switch_often(self, readers: Readers) -> None:
        """One read meets one switch at most: asyncpg prepares a second time by itself, but not a third time."""
        for _ in range(12):
            readers.all_see_something()
            self.switch()
        readers.all_see_something()

    def open(self, *kinds: type[Driver]) -> list[Driver]:
        opened = [kind(self.url) for kind in kinds]
        self._drivers += opened
        return opened

    def close(self) -> None:
        for driver in self._drivers:
            driver.close()
        self.database.close()


@pytest.fixture
def harness(postgresql_url):
    made = DriverHarness(postgresql_url)
    made.switch()
    yield made
    made.close()


def outcomes(driver: Driver, sql: str, count: int) -> str:
    """``x..``: the first read fails, the next two do not."""
    return "".join(_outcome(driver, sql) for _ in range(count))


def _outcome(driver: Driver, sql: str) -> str:
    try:
        found = driver.read(sql)
    except (psycopg.Error, asyncpg.PostgresError, sqlalchemy.exc.DBAPIError) as error:
        return "x" if "cached" in str(error) else str(error)
    return "." if len(found) == ROWS else str(found)


def check_answers(readers: Readers) -> None:
    assert readers.errors == []
    for seen in readers.seen:
        assert len(seen) > 5
        assert all(len(rows) == ROWS for rows in seen), "an empty answer, or a part"
        versions = [{value for row in rows for value in row if isinstance(value, int)} for rows in seen]
        assert all(len(found) == 1 for found in versions), "a mixture"
        order = [found.pop() for found in versions]
        assert order == sorted(order), "a version that was gone came back"
        assert order[0] < order[-1]


def test_statements_that_name_their_columns_do_not_notice_a_switch_whatever_the_driver(harness):
    drivers = harness.open(*NEVER_FAIL, *FAIL_ONCE, *FAIL_UNTIL_RECONNECTED)
    for driver in drivers:
        assert outcomes(driver, NAMED, 8) == "." * 8  # past the fifth read it is prepared
    with Readers(*(lambda driver=driver: driver.read(NAMED) for driver in drivers)) as readers:
        harness.switch_often(readers)
    check_answers(readers)


def test_select_star_does_not_notice_a_switch_with_the_settings_of_the_guide(harness):
    drivers = harness.open(*NEVER_FAIL)
    for driver in drivers:
        assert outcomes(driver, STAR, 8) == "." * 8
    with Readers(*(lambda driver=driver: driver.read(STAR) for driver in drivers)) as readers:
        harness.switch_often(readers)
    check_answers(readers)


@pytest.mark.parametrize("kind", FAIL_ONCE)
def test_select_star_in_a_prepared_statement_fails_once_and_not_when_it_is_tried_again(harness, kind):
    (driver,) = harness.open(kind)
    assert outcomes(driver, STAR, 8) == "." * 8
    harness.switch()
    assert outcomes(driver, STAR, 3) == "x.."


@pytest.mark.parametrize("kind", FAIL_UNTIL_RECONNECTED)
def test_psycopg_in_autocommit_keeps_a_prepared_select_star_that_fails_until_it_connects_anew(harness, kind):
    (driver,) = harness.open(kind)
    assert outcomes(driver, STAR, 8) == "." * 8
    harness.switch()
    assert outcomes(driver, STAR, 3) == "xxx"
    driver.close()
    driver.open()
    assert outcomes(driver, STAR, 3) == "..."


def test_our_own_queries_may_say_select_star(harness):
    service = QueryService(harness.url)
    for _ in range(8):
        service.query(STAR)
    with Readers(lambda: service.query(STAR).rows, lambda: service.query(STAR).rows) as readers:
        harness.switch_often(readers)
    service.close()
    check_answers(readers)


def test_a_reader_with_one_snapshot_for_several_statements_locks_the_gate_first(harness):
    """As the guide says of REPEATABLE READ; the lock makes a switch wait until the transaction ends."""
    with psycopg.connect(harness.url) as reader, psycopg.connect(harness.url) as other:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.read_only = True
        reader.execute(f"LOCK TABLE {GATE} IN ACCESS SHARE MODE".encode())
        reader.execute("SELECT 1")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(f"LOCK TABLE {GATE} IN ACCESS EXCLUSIVE MODE NOWAIT".encode())
        assert {row[1] for row in reader.execute(NAMED)} == {harness.version}
