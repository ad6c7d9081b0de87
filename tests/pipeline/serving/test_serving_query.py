"""Queries: correct, read-only, limited in rows and time, with the offsets of the answer."""

import gc
import threading

import pyarrow as pa
import pytest

from headrace.pipeline.serving.catalog import Catalog, Progress, Report, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import (
    DatabaseUnreachable,
    NotReadOnly,
    NotServed,
    QueryError,
    QueryTimeout,
    ServingError,
)
from headrace.pipeline.serving.queries.answer_limits import fetch
from headrace.pipeline.serving.queries.query import QueryService
from headrace.pipeline.serving.tables import create_table, data_table, select_all
from headrace.testing import ManualClock
from headrace.views import AsOf

SCHEMA = pa.schema([("page", pa.string()), ("clicks", pa.int64()), ("popular", pa.bool_())])
#: A query that does not end by itself in a lifetime.
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def clock():
    return ManualClock(wall_ms=1_000_000)


@pytest.fixture
def pages(database, clock):
    """A view of three pages, as of two partitions."""
    catalog = Catalog(database, clock)
    catalog.create_view("pages", "kappa", "h")
    catalog.add_version("pages", {}, "h")
    table = data_table("pages__v1", SCHEMA, ["page"])
    rows = pa.table([["a", "b", None], [1, 2, 3], [True, False, None]], schema=SCHEMA)
    for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
        catalog.set_state("pages", 1, event)
    with database.begin() as connection:
        create_table(connection, table)
        database.upsert(connection, table, rows, batch_id=1)
        catalog.set_progress(connection, Progress("pages", 1, 1, {"clicks": {0: 4, 1: 2}}))
        catalog.switch(connection, "pages", 1, select_all(table))
    return table


@pytest.fixture
def service(database_url, clock, pages):
    opened = QueryService(database_url, clock)
    yield opened
    opened.close()


def test_an_answer_has_columns_rows_and_what_it_is_as_of(service, clock):
    clock.advance(250)
    answer = service.query("SELECT * FROM pages ORDER BY clicks")
    assert answer.columns == ["page", "clicks", "popular"]
    assert answer.rows == [("a", 1, True), ("b", 2, False), (None, 3, None)]
    assert not answer.is_truncated
    assert answer.as_of == [AsOf("pages", 1, {"clicks": {0: 4, 1: 2}}, updated_ms=1_000_000, age_ms=250)]


READS = [
    ("SELECT count(*) FROM pages", ["pages"]),
    ("SELECT 1 FROM (SELECT * FROM pages) AS p JOIN pages AS q ON p.page = q.page;", ["pages"]),
    ("WITH p AS (SELECT * FROM PAGES) SELECT max(clicks) FROM p -- all of them", ["pages"]),
    ("VALUES (1), (2)", []),
    ("SELECT 'pages'", []),
]


def test_only_the_views_that_were_read_are_told(service):
    for sql, views in READS * 2:  # the second time from whatever a driver keeps
        assert [as_of.view for as_of in service.query(sql).as_of] == views, sql


def test_percent_signs_are_just_that(service):
    assert service.query("SELECT page FROM pages WHERE page LIKE 'a%'").rows == [("a",)]


def test_more_rows_than_the_limit_are_left_out_and_that_is_told(service):
    answer = service.query("SELECT clicks FROM pages ORDER BY 1", limit=2)
    assert (answer.rows, answer.is_truncated) == ([(1,), (2,)], True)
    assert not service.query("SELECT clicks FROM pages", limit=3).is_truncated


CHANGES = [
    "DELETE FROM pages__v1",
    "INSERT INTO pages__v1 (page, _key, _batch_id) VALUES ('x', 'x', 1)",
    "UPDATE headrace_views SET name = 'x'",
    "DROP VIEW pages",
    "CREATE TABLE x (y int)",
    "CREATE TEMP TABLE x (y int)",
    "SELECT 1; DROP VIEW pages",
    "SELECT 1; SELECT 2",
    "; DROP VIEW pages",
    "COMMIT",
    "BEGIN",
    "VACUUM",
    "PRAGMA query_only = OFF",
    "ATTACH 'x.db' AS x",
    "WITH gone AS (DELETE FROM pages__v1 RETURNING *) SELECT * FROM gone",
    "SET TRANSACTION READ WRITE",
    "COPY pages__v1 TO PROGRAM 'true'",
    "SELECT * INTO x FROM pages",
    "SELECT * FROM pages__v1 FOR UPDATE",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT load_extension('x')",
    "EXECUTE x",
    "SELECT * FROM nextval('x')",
]


def test_nothing_can_be_changed(service, database):
    for sql in CHANGES:
        with pytest.raises(QueryError):
            service.query(sql)
        assert len(service.query("SELECT * FROM pages").rows) == 3, sql
    with database.begin() as connection:
        names = connection.dialect.get_table_names(connection)
    assert "x" not in names


def test_a_write_is_told_what_is_possible(service):
    for sql in ("DELETE FROM pages__v1", "DROP VIEW pages", "CREATE TABLE x (y int)"):
        with pytest.raises(NotReadOnly, match="queries can only read: write one SELECT, VALUES or WITH"):
            service.query(sql)


def test_several_statements_are_told_so(service):
    with pytest.raises(NotReadOnly, match="only one statement is allowed"):
        service.query("SELECT 1; DELETE FROM pages__v1")


def test_a_setting_does_not_outlive_its_query(postgresql_url):
    database = Database(postgresql_url)
    Catalog(database)
    service = QueryService(postgresql_url)
    service.query("SELECT set_config('work_mem', '99MB', false), pg_advisory_lock(7)")
    assert service.query("SELECT current_setting('work_mem')").rows != [("99MB",)]
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7"
    assert service.query(held).rows == [(0,)]
    service.close()
    database.close()


def test_no_statement_is_told_so(service):
    for sql in ("", " ; ", "-- nothing", "/* nothing\n */"):
        with pytest.raises(QueryError, match="the query is empty"):
            service.query(sql)


class ImpatientClock(ManualClock):
    def monotonic_ms(self):
        self.advance(10)
        return super().monotonic_ms()


def test_a_query_that_takes_too_long_is_stopped(service, database_url, clock):
    impatient = QueryService(database_url, ImpatientClock())  # SQLite's; PostgreSQL has its own
    with pytest.raises(QueryTimeout, match="more than 60 ms"):
        impatient.query(ENDLESS, timeout_ms=60)
    assert len(impatient.query("SELECT * FROM pages").rows) == 3
    impatient.close()


def test_a_view_that_is_not_there_has_a_neighbour(service):
    with pytest.raises(QueryError, match=r"did you mean pages\?"):
        service.query("SELECT * FROM pagez")
    with pytest.raises(QueryError, match="the views are: pages"):
        service.query("SELECT * FROM customers")


def test_an_error_of_the_database_is_told(service):
    with pytest.raises(QueryError, match="nope"):
        service.query("SELECT nope FROM pages")
    with pytest.raises(QueryError, match=r"(?i)syntax"):
        service.query("SELECT FROM WHERE")


def test_the_views_are_listed_with_their_columns(service, database, clock):
    Catalog(database, clock).create_view("users", "lambda", "h")
    found = {view.name: view for view in service.views()}
    assert list(found) == ["pages", "users"]
    assert found["pages"].columns == {"page": "TEXT", "clicks": "BIGINT", "popular": "BOOLEAN"}
    assert (found["pages"].serving_version, found["pages"].state) == (1, "serving")
    assert found["pages"].as_of is not None
    assert (found["users"].columns, found["users"].as_of, found["users"].state) == ({}, None, None)


def test_an_answer_and_its_offsets_are_of_one_moment(service, database, pages, clock):
    """A writer commits rows and offsets together, many times; no reader sees one without the other."""
    catalog = Catalog(database, clock)
    stop = threading.Event()

    def write():
        for batch in range(2, 60):
            with database.begin() as connection:
                rows = pa.table([["a"], [batch], [True]], schema=SCHEMA)
                database.upsert(connection, pages, rows, batch_id=batch)
                catalog.set_progress(connection, Progress("pages", 1, batch, {"clicks": {0: batch}}))
        stop.set()

    with database.begin() as connection:
        catalog.set_progress(connection, Progress("pages", 1, 1, {"clicks": {0: 1}}))
    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not stop.is_set():
        answer = service.query("SELECT clicks FROM pages WHERE page = 'a'")
        assert answer.rows == [(answer.as_of[0].offsets["clicks"][0],)]
        seen.add(answer.rows[0][0])
    writer.join()
    assert seen


def test_a_database_without_views_is_told(database_url):
    service = QueryService(database_url)
    with pytest.raises(ServingError, match=r"there is no serving database at|has no Headrace views"):
        service.query("SELECT 1")
    service.close()


def test_a_file_that_is_no_database_is_told(tmp_path):
    path = tmp_path / "views.db"
    path.write_bytes(b"not a database" * 100)
    service = QueryService(f"sqlite:///{path}")
    with pytest.raises(ServingError):
        service.query("SELECT 1")
    service.close()


def test_values_cannot_be_made_too_large_for_memory(service, database):
    if database.is_sqlite:
        with pytest.raises(QueryError, match="too big"):
            service.query("SELECT zeroblob(1000000000)")


def test_an_answer_is_as_old_as_the_last_comparison_with_the_log(service, database, clock):
    """Not as old as its last change: a quiet topic that is fully read does not make an answer stale."""
    clock.advance(3_600_000)
    Catalog(database, clock).set_reports([Report("pages", 1, complete_ms=clock.wall_ms() - 85)])
    (as_of,) = service.query("SELECT * FROM pages").as_of
    assert (as_of.updated_ms, as_of.age_ms) == (1_000_000, 85)
    assert as_of.complete_ms == clock.wall_ms() - 85
    assert next(view for view in service.views() if view.name == "pages").as_of == as_of


def test_a_database_of_an_older_runner_has_ages_too(service, database, clock):
    with database.begin() as connection:
        connection.exec_driver_sql("DROP TABLE headrace_reports")
    clock.advance(250)
    assert service.query("SELECT * FROM pages").as_of[0].age_ms == 250


@pytest.mark.parametrize(
    ("due_ms", "then"), [(None, "correct it and run 'headrace views apply'"), (5, "is tried again")]
)
def test_a_view_that_failed_before_it_served_says_so_and_why(service, database, clock, due_ms, then):
    catalog = Catalog(database, clock)
    catalog.create_view("users", "kappa", "h")
    catalog.add_version("users", {}, "h")
    with pytest.raises(NotServed, match="no version of users has caught up yet: v1 is starting"):
        service.query("SELECT * FROM users")
    catalog.set_state("users", 1, VersionEvent.FAILED, error="division by zero in decoders.py", due_ms=due_ms)
    with pytest.raises(NotServed, match="because v1 failed: division by zero") as caught:
        service.query("SELECT * FROM users")
    assert then in str(caught.value)


def test_a_view_of_which_nothing_serves_yet_is_told(service, database, clock):
    Catalog(database, clock).create_view("users", "kappa", "h")
    with pytest.raises(QueryError, match="no version of users has caught up yet"):
        service.query("SELECT * FROM users")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_connection_that_breaks_is_no_mistake_of_the_query(service):
    for sql in ("SELECT pg_terminate_backend(pg_backend_pid())", "SELECT pg_terminate_backend(pg_backend_pid()), 1"):
        with pytest.raises(DatabaseUnreachable, match=r"the connection to .* broke"):
            service.query(sql)
        assert service.query("SELECT clicks FROM pages WHERE page = 'a'").rows == [(1,)]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_connection_that_breaks_after_the_last_row_leaves_no_cursor_open(service, database, monkeypatch):
    def fetch_and_break(cursor, limit):
        answer = fetch(cursor, limit)
        with database.begin() as other:
            ended = other.exec_driver_sql(f"SELECT pg_terminate_backend({cursor.connection.info.backend_pid}, 9000)")
            assert ended.scalar() is True
        return answer

    monkeypatch.setattr("headrace.pipeline.serving.queries.query.fetch", fetch_and_break)
    with pytest.raises(DatabaseUnreachable, match=r"the connection to .* broke"):
        service.query("SELECT clicks FROM pages")
    gc.collect()  # psycopg warns of a cursor that is open at its end, and pytest makes a failure of the warning


@pytest.mark.parametrize(
    ("database_url", "sql", "problem"),
    [
        ("sqlite", "SELECT instr(replace(hex(zeroblob(250000)), '0', 'a'), 'b')", "a value has more than"),
        ("sqlite", "SELECT instr(hex(zeroblob(250000)), hex(zeroblob(100000)) || 'b')", "a value has more than"),
        ("sqlite", "SELECT length(zeroblob(2000000))", "a value has more than"),
        ("sqlite", "SELECT hex(zeroblob(100000)) LIKE '%' || hex(zeroblob(1000)) || 'b'", "pattern too complex"),
    ],
    indirect=["database_url"],
)
def test_no_single_function_outlasts_the_clock(service, sql, problem):
    with pytest.raises(QueryError, match=problem):
        service.query(sql, timeout_ms=1000)
    assert service.query("SELECT length(hex(zeroblob(500000)))").rows == [(1_000_000,)], "another one may be longer"


def test_an_answer_has_so_many_bytes_at_most(service, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.serving.queries.answer_limits.MAX_ANSWER_BYTES", 2500)
    values = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9) SELECT {} FROM n"
    text = "printf('%01000d', x)" if service.name.startswith("sqlite") else "lpad(x::text, 1000, '0')"
    answer = service.query(values.format(text))
    assert (len(answer.rows), answer.is_truncated) == (2, True)
    answer = service.query(values.format("x"), limit=9)
    assert (len(answer.rows), answer.is_truncated) == (9, False)
    monkeypatch.setattr("headrace.pipeline.serving.queries.answer_limits.MAX_ANSWER_BYTES", 10)
    assert len(service.query(values.format(text)).rows) == 1, "one is shown, however large"
