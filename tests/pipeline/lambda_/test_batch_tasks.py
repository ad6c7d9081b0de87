"""Large batches of Lambda views, which Spark's tasks compute and copy to PostgreSQL."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lambda_harness import FIRST, SECOND, LambdaHarness
from lambda_harness import quick as quick
from test_batch_layer import contents, dead_letter_count, from_scratch, micro_batch

from headrace.pipeline.lambda_ import batch_tasks
from headrace.pipeline.lambda_.batch_tables import BatchTables
from headrace.pipeline.lambda_.tables import batch_name
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.serving.postgresql import staging as postgresql_staging

pytestmark = pytest.mark.timeout(900)
#: Every kind of partial column, keys and values that are stored as bits, and outputs that Spark computes.
MANY = """
    SELECT page, unix_millis(timestamp_millis(ms % 2)) AS half, count(*) AS n, sum(ms) / count(*) AS ratio,
           avg(ms) AS mean, avg(CAST(ms AS DECIMAL(9, 2))) AS exact, min(ms) AS shortest,
           max(CAST(ms AS DOUBLE)) AS longest, min_by(page, ms) AS first_page, last(ms) AS latest,
           count_if(ms > 4) AS slow
    FROM events GROUP BY page, timestamp_millis(ms % 2) HAVING count(*) > 0 ORDER BY n DESC
"""


class Power(BaseException):
    """Goes off: nothing catches this."""


@pytest.fixture
def make(spark, kafka, postgresql_url, tmp_path, monkeypatch):
    """Makes a harness whose batches are computed in tasks, and never through the driver."""
    database = Database(postgresql_url)

    def refuse(*_):
        raise AssertionError("the rows came to the driver")

    monkeypatch.setattr(BatchTables, "load", refuse)
    opened = []

    def make_one(**options) -> LambdaHarness:
        context = LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, **options)
        opened.append(context)
        harness = context.__enter__()
        project = replace(harness.context.project, serving_executors_from=1)
        harness.context = replace(harness.context, project=project)
        return harness

    yield make_one
    for context in opened:
        context.__exit__(None, None, None)
    database.close()


def left(harness: LambdaHarness, batch: int) -> list[str]:
    return postgresql_staging.stages(harness.context.database, batch_name(*harness.key, batch))


@pytest.mark.parametrize("query", [None, MANY], ids=["having", "many functions"])
def test_batches_in_tasks_follow_the_log_full_and_incremental(make, query):
    harness = make() if query is None else make(query=query)
    harness.send(*FIRST)
    store = harness.store()
    layer = harness.batch_layer(store)
    first = layer.run()
    harness.serve()
    assert (first.batch, first.is_full) == (1, True)
    assert harness.seen()[0] == from_scratch(harness)
    progress = store.progress()
    assert (progress.events, progress.dead_letters) == (5, 1)
    assert dead_letter_count(harness) == 1

    harness.send(*SECOND)
    micro_batch(harness, store)
    second = layer.run()
    assert (second.batch, second.is_full, second.cut) == (2, False, harness.ends())
    assert harness.seen()[0] == from_scratch(harness)
    incremental = contents(store, 2)
    assert len(incremental) == second.rows
    third = layer.run(full=True)
    assert (third.batch, third.is_full, third.rows) == (3, True, second.rows)
    assert contents(store, 3) == incremental
    assert harness.seen()[0] == from_scratch(harness)
    assert [left(harness, batch) for batch in (1, 2, 3)] == [[], [], []]


def test_a_crash_before_the_commit_leaves_the_last_batch(make, monkeypatch):
    harness = make()
    harness.send(*FIRST)
    store = harness.store()
    harness.batch_layer(store).run()
    harness.serve()
    harness.send(*SECOND)
    micro_batch(harness, store)

    def goes_off(*_):
        raise Power

    with monkeypatch.context() as crash:
        crash.setattr(postgresql_staging, "become_table", goes_off)
        crash.setattr(postgresql_staging, "try_to_drop_stages", lambda *_: None)  # who is dead does not tidy up
        with pytest.raises(Power):
            harness.batch_layer(store).run()
    harness.check()
    assert len(left(harness, 2)) == 2, "the stage and its list of parts"
    assert harness.batch_layer(store).run().batch == 2
    harness.check()
    assert left(harness, 2) == []


def test_keys_that_only_spark_distinguishes_are_merged_in_the_driver(make, monkeypatch):
    monkeypatch.undo()  # the driver may load
    monkeypatch.setattr(batch_tasks, "_ROWS_AT_A_TIME", 1)
    load, loads = BatchTables.load, []
    harness = make(query="SELECT page, count(*) AS n, sum(ms) AS total FROM events GROUP BY page")
    monkeypatch.setattr(BatchTables, "load", lambda *given: loads.append("by the driver") or load(*given))
    harness.send(("a\0", 1), ("a\ufffd", 2), ("b", 3), ("a\0", 4))
    store = harness.store()
    spark = harness.context.spark
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")  # so that the two are not merged in a task
    try:
        result = harness.batch_layer(store).run()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert loads == ["by the driver"]
    harness.serve()
    assert result.rows == 2
    assert harness.seen()[0] == [("a\ufffd", 3, 7), ("b", 1, 3)]
    keys = canonical_keys(store.algebra.loaded(next(iter(store.batch_tables.partial_rows(1)))), ["_k0"])
    assert sorted(keys.to_pylist()) == ['["a\ufffd"]', '["b"]']


def test_a_small_batch_and_a_query_that_needs_java_are_loaded_by_the_driver(make, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(BatchTables, "load_staged", lambda *_: pytest.fail("tasks have loaded the batch"))
    small = make()
    small.context = replace(small.context, project=replace(small.context.project, serving_executors_from=6))
    sketch = make(query="SELECT page, approx_count_distinct(ms) AS n FROM events GROUP BY page")
    for harness in (small, sketch):
        harness.send(*FIRST)
        harness.batch_layer(harness.store()).run()
        harness.serve()
        assert harness.seen()[0] == from_scratch(harness)
