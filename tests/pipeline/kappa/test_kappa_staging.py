"""Large micro-batches of Kappa versions, whose rows go from Spark's tasks to PostgreSQL. The driver only commits."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from kappa_harness import KappaHarness

from headrace.pipeline.kappa import batch_rows
from headrace.pipeline.kappa.batch_rows import TargetTable
from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.postgresql import staging as postgresql_staging

pytestmark = pytest.mark.timeout(900)


class Power(Exception):
    """Goes off, and nobody tidies up."""


@pytest.fixture
def harness(spark, kafka, postgresql_url, tmp_path):
    made = KappaHarness(spark, kafka.bootstrap_servers, postgresql_url, tmp_path)
    made.project = replace(made.project, serving_executors_from=1)
    made.way = KappaStream
    yield made
    made.close()


@pytest.fixture
def no_rows_in_the_driver(monkeypatch):
    def refuse(*_):
        raise AssertionError("the rows came to the driver")

    monkeypatch.setattr(TargetTable, "rows", refuse)


def left(harness: KappaHarness) -> list[str]:
    return postgresql_staging.stages(harness.database, "pages__v1")


@pytest.mark.usefixtures("no_rows_in_the_driver")
def test_rows_reach_the_database_from_the_tasks(harness):
    definition = harness.definition()
    harness.apply(definition)
    harness.clicks(50, pages=20)
    harness.run_once()
    harness.check(definition)
    harness.serve(1)
    harness.clicks(3, pages=3)  # in place: most rows do not change
    harness.run_once()
    harness.check(definition)
    harness.clicks(40, pages=30)  # the table is replaced, and the SQL view that shows it follows
    harness.run_once()
    harness.check(definition)
    progress = harness.progress()
    assert (progress.events, progress.batch_id) == (93, 2)
    with harness.database.read() as reader:
        shown = reader.exec_driver_sql("SELECT * FROM pages").fetchall()
    assert sorted(map(tuple, shown)) == sorted(harness.rows())
    assert left(harness) == []


def test_both_ways_store_the_same_values(harness):
    query = """
        SELECT page, count(*) AS n, sum(ms) AS ms, CAST(avg(ms) AS DECIMAL(12, 3)) AS mean, max(at) AS at,
               max(CAST(at AS DATE)) AS day, max(unhex('00ff')) AS raw, max(page = 'p1') AS is_one,
               max(named_struct('page', page, 'ms', array(ms))) AS most, max(CAST('NaN' AS DOUBLE)) AS none
        FROM events GROUP BY page HAVING count(*) > 2
    """
    definition = harness.definition(query)
    times = ["2026-11-17T08:00:00.123456Z", None, "1969-12-31T23:59:59Z"]
    pages = ["p1", 'quo"te', "new\nline", "", "comma,", "\\N", None, "nul\0"]
    harness.produce(*({"page": pages[n % 8], "ms": n, "at": times[n % 3]} for n in range(21)))
    stored = []
    for version, executors_from in ((1, 1), (2, 0)):
        harness.project = replace(harness.project, serving_executors_from=executors_from)
        harness.apply(replace(definition, dead_letters=f"{harness.topic}.dead{version}"))
        harness.run_once(version)
        with harness.database.read() as reader:
            rows = reader.exec_driver_sql(f"SELECT *, most::text AS text FROM pages__v{version} ORDER BY _key")
            stored.append([tuple(str(value) for value in row) for row in rows])
    assert stored[0] == stored[1]
    assert [row[10] for row in stored[0]].count("True") == 3, "three pages have too few events, and are hidden"


@pytest.mark.usefixtures("no_rows_in_the_driver")
def test_the_last_row_of_a_key_counts_without_groups(harness):
    definition = harness.definition("SELECT page, ms FROM events", key=("page",))
    harness.apply(definition)
    harness.produce(*({"page": f"p{n % 4}", "ms": n} for n in range(40)))
    harness.run_once()
    # Each partition has the events of two pages, in their order.
    assert sorted(harness.rows()) == [("p0", 36), ("p1", 37), ("p2", 38), ("p3", 39)]
    assert harness.progress().events == 40


@pytest.mark.parametrize("point", ["copied", "applied", "committed"])
def test_a_crash_at_any_point_counts_each_event_once(harness, monkeypatch, point):
    definition = harness.definition()
    harness.apply(definition)
    harness.clicks(30)
    harness.run_once()
    harness.clicks(30, pages=11)

    def goes_off(*_, **__):
        raise Power

    with monkeypatch.context() as crash:
        # What a kill -9 leaves: nothing is cleaned up.
        crash.setattr(postgresql_staging, "try_to_drop_stages", lambda *_: None)
        if point == "copied":
            crash.setattr(postgresql_staging, "check_parts", goes_off)
        elif point == "applied":
            crash.setattr(harness.catalog, "set_progress", goes_off)
        else:
            crash.setattr("headrace.pipeline.kappa.stream.KappaStream._committed", goes_off)
        running = harness.running()
        with pytest.raises(Power):
            running.run_once()
    assert harness.progress().events == (60 if point == "committed" else 30)
    assert len(left(harness)) == (1 if point == "committed" else 2), "a crash leaves the stage, or its list of parts"
    harness.run_once()
    harness.check(definition)
    assert harness.progress().events == 60
    harness.clicks(1)
    harness.run_once()
    assert left(harness) == []


def test_the_driver_writes_if_the_project_says_so(harness, monkeypatch):
    def refuse(*_):
        raise AssertionError("a task has copied rows")

    monkeypatch.setattr(batch_rows, "copy_rows", refuse)
    harness.project = replace(harness.project, serving_executors_from=21)
    definition = harness.definition()
    harness.apply(definition)
    harness.clicks(20)
    harness.run_once()
    harness.check(definition)


def test_the_driver_writes_if_tasks_do_not_reach_the_database(harness, monkeypatch, caplog):
    monkeypatch.setattr(Database, "login", lambda _: {"host": "127.0.0.1", "port": 1, "password": "hush"})
    definition = harness.definition()
    harness.apply(definition)
    harness.clicks(20)
    with caplog.at_level(logging.WARNING, "headrace.views"):
        harness.run_once()
    harness.check(definition)
    assert "rows pass through the driver" in caplog.text
    assert "hush" not in caplog.text
    assert left(harness) == []
