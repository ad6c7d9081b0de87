"""Queries that can be combined from partial results, and the reasons for other queries."""

from __future__ import annotations

import pytest

from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import NotCombinable, SortBy, analyze

SCHEMA = "page STRING, user STRING, ms BIGINT, at TIMESTAMP, tags ARRAY<STRING>, \
low STRING COLLATE UTF8_LCASE, labels MAP<STRING, STRING>, any VARIANT"


@pytest.fixture
def events(spark):
    spark.createDataFrame([], SCHEMA).createOrReplaceTempView("events")
    yield
    spark.catalog.dropTempView("events")


def test_keys_and_functions(spark, events):
    query = "SELECT upper(page), count(*), sum(ms), count(*) + 1 FROM events GROUP BY upper(page), user"
    plan = analyze(spark.sql(query))
    assert plan.key_columns == ("_k0", "_k1")
    assert [(function.column, function.how) for function in plan.functions] == [("_f0", "count"), ("_f1", "sum")]
    assert (plan.order, plan.limit) == ((), None)


def test_a_window_is_two_key_columns(spark, events):
    plan = analyze(spark.sql("SELECT window.start, count(*) FROM events GROUP BY window(at, '1 minute')"))
    assert plan.key_columns == ("_k0_start", "_k0_end")


def test_nan_is_sorted_as_the_largest_number(spark, events):
    """SQLite stores it as NULL."""
    query = "SELECT page, avg(ms) AS mean FROM events GROUP BY page ORDER BY mean DESC, sqrt(max(ms)) LIMIT 3"
    plan = analyze(spark.sql(query))
    assert plan.order == (
        SortBy("_order_0", True, False),
        SortBy("mean", True, False),
        SortBy("_order_2", False, True),
        SortBy("_order_3", False, True),
    )


def test_arrays_are_not_sorted_by_a_database(spark, events):
    with pytest.raises(NotCombinable, match=r"it sorts by .*, which has the type array<bigint>"):
        analyze(spark.sql("SELECT page, count(*) AS n FROM events GROUP BY page ORDER BY array(n, 1) LIMIT 3"))


def test_top_k(spark, events):
    query = "SELECT page, count(*) AS n FROM events GROUP BY page ORDER BY n DESC, max(ms), page LIMIT 3"
    plan = analyze(spark.sql(query))
    assert plan.output == ("page", "n")
    assert plan.order == (SortBy("n", True, False), SortBy("_order_1", False, True), SortBy("page", False, True))
    assert plan.limit == 3


def test_pipes(spark, events):
    plan = analyze(spark.sql("FROM events |> WHERE ms > 1 |> AGGREGATE count(*) AS n GROUP BY page |> WHERE n > 1"))
    assert plan.output == ("page", "n")


def test_data_frames_as_well_as_sql(spark, events):
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.table("events").where("ms > 0").groupBy("page").agg(F.count("*").alias("n")).where("n > 1").limit(2)
    assert analyze(frame).limit == 2


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT page FROM events", "it does not aggregate"),
        ("SELECT count(*) FROM events a JOIN events b ON a.page = b.page", "it has a JOIN"),
        ("SELECT page, count(*) FROM events GROUP BY page UNION ALL SELECT user, 1 FROM events", "UNION"),
        ("SELECT count(DISTINCT user) FROM events", "use approx_count_distinct(...)"),
        ("SELECT percentile(ms, 0.5) FROM events", "percentile() over all events cannot be computed"),
        ("SELECT collect_list(ms) FROM events", "collect_list() over all events cannot be computed"),
        ("SELECT max(n) FROM (SELECT count(*) AS n FROM events GROUP BY page)", "rows that are already aggregated"),
        ("SELECT page, rank() OVER (ORDER BY count(*)) FROM events GROUP BY page", "window functions"),
        ("SELECT count(*) FROM events WHERE at > now()", "it uses the current time"),
        ("SELECT count(*) FROM events WHERE rand() > 0.5", "has a different value each time"),
        ("SELECT page, count(*), rand() FROM events GROUP BY page", "has a different value each time"),
        ("SELECT sum(DISTINCT ms) FROM events", "sum(DISTINCT ...) cannot be combined"),
        ("SELECT try_sum(ms) FROM events", "try_sum() over all events cannot be computed"),
        ("SELECT count(*) FROM (SELECT * FROM events LIMIT 10)", "it has a LIMIT inside of a subquery"),
        ("SELECT count(*) FROM events WHERE ms > (SELECT avg(ms) FROM events)", "a subquery inside of an expression"),
        ("SELECT tags, count(*) FROM events GROUP BY tags", "tags, which has the type array<string>"),
        ("SELECT low, count(*) FROM events GROUP BY low", "the collation UTF8_LCASE"),
        ("SELECT approx_count_distinct(low) FROM events", "events.low, which has the collation UTF8_LCASE"),
        ("SELECT approx_count_distinct(array(low)) FROM events", "has the collation UTF8_LCASE"),
        ("SELECT approx_count_distinct(labels) FROM events", "events.labels, which has the type map<string,string>"),
        ("SELECT approx_count_distinct(struct(any)) FROM events", "has a field any that has the type variant"),
        ("SELECT max(tags) FROM events", "which has the type array<string>"),
        ("SELECT * FROM (SELECT page, count(*) n FROM events GROUP BY page LIMIT 3) WHERE n > 1", "it filters rows"),
        ("SELECT page, count(*) FROM events GROUP BY page LIMIT 3 OFFSET 2", "it has an OFFSET"),
        ("SELECT first(user) FROM events", "first() needs the column _timestamp"),
        ("SELECT session_window(at, '5 minutes'), count(*) FROM events GROUP BY 1", "session"),
        ("SELECT DISTINCT count(*) FROM events GROUP BY page", "DISTINCT in addition to its aggregate"),
        ("SELECT x, count(*) FROM VALUES (1), (2) AS v(x) GROUP BY x", "it does not read the events"),
        ("SELECT id, count(*) FROM range(3) GROUP BY id", "it does not read the events"),
    ],
)  # fmt: skip
def test_queries_that_do_not_combine(spark, events, query, reason):
    with pytest.raises(NotCombinable) as caught:
        Algebra(analyze(spark.sql(query)))
    assert reason in str(caught.value)
