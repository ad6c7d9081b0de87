"""Switching a view while it is read: no error, no empty answer, no mixture, and no long wait."""

import threading

import psycopg
import pyarrow as pa
import pytest

from headrace.pipeline.serving.catalog import Catalog, Progress, VersionEvent
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DatabaseBusy, UnsuitableSchema
from headrace.pipeline.serving.postgresql import dialect as postgresql_dialect
from headrace.pipeline.serving.queries.query import QueryService
from headrace.pipeline.serving.tables import create_table, data_table, drop_table, drop_view, repoint_view, select_all

SCHEMA = pa.schema([("page", pa.string()), ("version", pa.int64())])
PAGES = [f"page {number}" for number in range(50)]


def load(database, version):
    table = data_table(f"pages__v{version}", SCHEMA, ["page"])
    with database.begin() as connection:
        create_table(connection, table)
        database.bulk_load(connection, table, pa.table([PAGES, [version] * len(PAGES)], schema=SCHEMA))
    return table


class Readers:
    """Threads that read in a tight loop and keep what they saw, or what went wrong."""

    def __init__(self, *reads):
        self.stop = threading.Event()
        self.errors = []
        self.seen = [[] for _ in reads]
        self.moved = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=each) for each in zip(reads, self.seen, strict=True)]

    def _loop(self, read, seen):
        try:
            while not self.stop.is_set():
                seen.append(read())
                self.moved.set()
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.errors.append(error)
            self.moved.set()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def see_something(self):
        self.moved.clear()
        assert self.moved.wait(30)

    def all_see_something(self):
        """Each reader reads once more, from its beginning to its end."""
        counts = [len(seen) + 1 for seen in self.seen]
        while not self.errors and any(len(seen) <= count for seen, count in zip(self.seen, counts, strict=True)):
            self.see_something()


def test_readers_in_a_tight_loop_do_not_notice_twenty_switches(database, database_url):
    catalog = Catalog(database)
    catalog.create_view("pages", "kappa", "h")
    service, other = QueryService(database_url), Database(database_url)

    def switch_to_a_new_version():
        version = catalog.add_version("pages", {}, "h").version
        table = load(database, version)
        for event in (VersionEvent.STARTED, VersionEvent.CAUGHT_UP):
            catalog.set_state("pages", version, event)
        with database.begin() as connection:
            catalog.set_progress(connection, Progress("pages", version, 1, {"clicks": {0: version}}))
            catalog.switch(connection, "pages", version, select_all(table))
        if version > 2:
            with database.begin() as connection:
                drop_table(connection, f"pages__v{version - 2}")

    def ask():
        answer = service.query("SELECT page, version FROM pages ORDER BY page")
        assert [as_of.version for as_of in answer.as_of] == [answer.rows[0][1]]
        return answer.rows

    def read_directly():
        """As a program would that knows nothing of us: a statement of its own."""
        with other._writer.connect() as connection:
            return connection.exec_driver_sql("SELECT page, version FROM pages ORDER BY page").fetchall()

    switch_to_a_new_version()
    with Readers(ask, read_directly if not database.is_sqlite else ask) as readers:
        for _ in range(20):
            readers.see_something()
            switch_to_a_new_version()
    assert {row[1] for row in ask()} == {21}
    service.close()
    other.close()
    assert readers.errors == []
    for seen in readers.seen:
        assert all(len(rows) == len(PAGES) for rows in seen), "an empty answer, or a part"
        versions = [{row[1] for row in rows} for rows in seen]
        assert all(len(found) == 1 for found in versions), "a mixture"
        order = [min(found) for found in versions]
        assert order == sorted(order), "a version that was gone came back"


def test_a_snapshot_older_than_the_load_does_not_see_the_new_view_over_an_empty_table(database):
    """In PostgreSQL names are looked up now, rows as of then: without the gate this reader would get nothing."""
    Catalog(database)
    with database.begin() as connection:
        repoint_view(connection, "pages", select_all(load_in(database, connection, 1)))
    answers = []
    with database.read() as reader:
        assert reader.exec_driver_sql("SELECT 1").scalar() == 1  # the snapshot is taken
        load(database, 2)
        switch = threading.Thread(target=point_at, args=(database, 2))
        switch.start()
        switch.join(0.2)  # SQLite's is done by now; PostgreSQL's must not be before this reader is
        answers.append(reader.exec_driver_sql("SELECT DISTINCT version FROM pages").fetchall())
    switch.join()
    with database.read() as reader:
        answers.append(reader.exec_driver_sql("SELECT DISTINCT version FROM pages").fetchall())
    assert answers == [[(1,)], [(2,)]]


def load_in(database, connection, version):
    table = data_table(f"pages__v{version}", SCHEMA, ["page"])
    create_table(connection, table)
    database.bulk_load(connection, table, pa.table([PAGES, [version] * len(PAGES)], schema=SCHEMA))
    return table


def point_at(database, version):
    with database.begin() as connection:
        repoint_view(connection, "pages", select_all(data_table(f"pages__v{version}", SCHEMA, ["page"])))


def test_a_switch_that_fails_changes_nothing(database):
    Catalog(database)
    load(database, 1)
    point_at(database, 1)
    with pytest.raises(Exception, match="pages__v9"):
        point_at(database, 9)
    with database.read() as reader:
        assert reader.exec_driver_sql("SELECT DISTINCT version FROM pages").fetchall() == [(1,)]


def test_columns_may_change_with_a_switch(database):
    Catalog(database)
    for sql, columns in (("SELECT 1 AS a", ["a"]), ("SELECT 'x' AS a, 2 AS b", ["a", "b"]), ("SELECT 3 AS c", ["c"])):
        with database.begin() as connection:
            repoint_view(connection, "pages", sql)
        with database.read() as reader:
            assert list(reader.exec_driver_sql("SELECT * FROM pages").keys()) == columns


def test_a_percent_sign_in_a_views_query_is_just_that(database):
    Catalog(database)
    with database.begin() as connection:
        repoint_view(connection, "pages", "SELECT 'a%b' LIKE 'a%%' AS found")
    with database.read() as reader:
        assert bool(reader.exec_driver_sql("SELECT found FROM pages").scalar())


def test_a_table_of_somebody_else_is_not_replaced(database):
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE pages (x INTEGER)")
    for change in (lambda connection: repoint_view(connection, "pages", "SELECT 1"), lambda c: drop_view(c, "pages")):
        with pytest.raises(UnsuitableSchema, match="does not belong to Headrace"), database.begin() as connection:
            change(connection)


def test_a_view_that_is_dropped_is_gone(database):
    Catalog(database)
    with database.begin() as connection:
        repoint_view(connection, "pages", "SELECT 1 AS a")
        drop_view(connection, "pages")
        drop_view(connection, "pages")
        assert not connection.dialect.has_table(connection, "pages")


def test_a_switch_that_waits_for_a_long_reader_lets_the_others_through(postgresql_url, monkeypatch):
    database = Database(postgresql_url)
    Catalog(database)
    load(database, 1)
    load(database, 2)
    point_at(database, 1)
    monkeypatch.setattr(postgresql_dialect.time, "sleep", lambda _: paused.set() or resume.wait(30))
    paused, resume = threading.Event(), threading.Event()
    with psycopg.connect(postgresql_url) as long_reader:
        long_reader.execute("SELECT * FROM pages")
        switch = threading.Thread(target=point_at, args=(database, 2))
        switch.start()
        assert paused.wait(30)
        with database.read() as reader:  # would wait for ever if the switch kept its place in the queue
            assert reader.exec_driver_sql("SELECT DISTINCT version FROM pages").fetchall() == [(1,)]
    resume.set()
    switch.join()
    with database.read() as reader:
        assert reader.exec_driver_sql("SELECT DISTINCT version FROM pages").fetchall() == [(2,)]
    database.close()


def test_a_switch_gives_up_on_a_reader_that_does_not_end(postgresql_url, monkeypatch):
    database = Database(postgresql_url)
    Catalog(database)
    with database.begin() as connection:
        repoint_view(connection, "pages", "SELECT 1 AS a")
    monkeypatch.setattr(postgresql_dialect.time, "sleep", lambda _: None)

    def switch():
        with database.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE before (x INTEGER)")
            postgresql_dialect.with_gate_closed(
                connection, lambda: connection.exec_driver_sql("DROP VIEW pages") and None, wait_ms=100
            )

    with psycopg.connect(postgresql_url) as long_reader:
        long_reader.execute("SELECT * FROM pages")
        with pytest.raises(DatabaseBusy, match="so the view was not switched: end them"):
            switch()
    database.close()


def test_a_role_that_may_only_read_reads_on_after_any_switch(postgresql, postgresql_url):
    database = Database(postgresql_url)
    Catalog(database)
    role = "only_reads"
    with database.begin() as connection:
        repoint_view(connection, "pages", "SELECT 1 AS a")
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        connection.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    service = QueryService(postgresql_url.replace("headrace@", f"{role}@"))
    for select, columns in (
        ("SELECT 2 AS a", ["a"]),
        ("SELECT 3 AS b, 4 AS a", ["b", "a"]),
        ("SELECT 'x' AS b", ["b"]),
    ):
        with database.begin() as connection:
            repoint_view(connection, "pages", select)
        assert service.query("SELECT * FROM pages").columns == columns
    service.close()
    with database.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}")
        connection.exec_driver_sql(f"DROP ROLE {role}")
    database.close()


def test_views_of_others_over_a_view_stay_or_are_named(postgresql_url):
    database = Database(postgresql_url)
    Catalog(database)
    with database.begin() as connection:
        repoint_view(connection, "pages", "SELECT 1 AS a")
        connection.exec_driver_sql("CREATE VIEW theirs AS SELECT a FROM pages")
    with database.begin() as connection:
        repoint_view(connection, "pages", "SELECT 2 AS a, 'x' AS b")
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT a FROM theirs").scalar() == 2
    for change in (
        lambda connection: repoint_view(connection, "pages", "SELECT 3 AS c"),
        lambda c: drop_view(c, "pages"),
    ):
        with pytest.raises(UnsuitableSchema, match="view theirs depends on view pages"), database.begin() as connection:
            change(connection)
    database.close()
