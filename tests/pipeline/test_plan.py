"""Which queries combine, and what is said of those that do not."""

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


def test_top_k(spark, events):
    query = "SELECT page, count(*) AS n FROM events GROUP BY page ORDER BY n DESC, max(ms), page LIMIT 3"
    plan = analyze(spark.sql(query))
    assert plan.output == ("page", "n")
    assert plan.order == (SortBy("n", True, False), SortBy("_order_1", False, True), SortBy("page", False, True))
    assert plan.limit == 3


def test_data_frames_as_well_as_sql(spark, events):
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.table("events").where("ms > 0").groupBy("page").agg(F.count("*").alias("n")).where("n > 1").limit(2)
    assert analyze(frame).limit == 2


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT page FROM events", "it does not aggregate"),
        ("SELECT count(*) FROM events a JOIN events b ON a.page = b.page", "it joins"),
        ("SELECT page, count(*) FROM events GROUP BY page UNION ALL SELECT user, 1 FROM events", "UNION"),
        ("SELECT count(DISTINCT user) FROM events", "approx_count_distinct(...) does"),
        ("SELECT percentile(ms, 0.5) FROM events", "percentile() over everything does not follow"),
        ("SELECT collect_list(ms) FROM events", "collect_list() over everything does not follow"),
        ("SELECT max(n) FROM (SELECT count(*) AS n FROM events GROUP BY page)", "it aggregates what is already"),
        ("SELECT page, rank() OVER (ORDER BY count(*)) FROM events GROUP BY page", "window functions"),
        ("SELECT count(*) FROM events WHERE at > now()", "it asks for the current time"),
        ("SELECT count(*) FROM events WHERE rand() > 0.5", "has another value each time"),
        ("SELECT page, count(*), rand() FROM events GROUP BY page", "has another value each time"),
        ("SELECT sum(DISTINCT ms) FROM events", "sum(DISTINCT ...) does not combine"),
        ("SELECT try_sum(ms) FROM events", "try_sum() over everything does not follow"),
        ("SELECT count(*) FROM (SELECT * FROM events LIMIT 10)", "it has a LIMIT inside of a subquery"),
        ("SELECT count(*) FROM events WHERE ms > (SELECT avg(ms) FROM events)", "a subquery inside of an expression"),
        ("SELECT tags, count(*) FROM events GROUP BY tags", "tags, of the type array<string>"),
        ("SELECT low, count(*) FROM events GROUP BY low", "the collation UTF8_LCASE"),
        ("SELECT approx_count_distinct(low) FROM events", "events.low, a text with the collation UTF8_LCASE"),
        ("SELECT approx_count_distinct(array(low)) FROM events", "a text with the collation UTF8_LCASE"),
        ("SELECT approx_count_distinct(labels) FROM events", "events.labels, of the type map<string,string>"),
        ("SELECT approx_count_distinct(struct(any)) FROM events", "with the field any, of the type variant"),
        ("SELECT max(tags) FROM events", "of the type array<string>"),
        ("SELECT * FROM (SELECT page, count(*) n FROM events GROUP BY page LIMIT 3) WHERE n > 1", "filters what a"),
        ("SELECT page, count(*) FROM events GROUP BY page LIMIT 3 OFFSET 2", "it has an OFFSET"),
        ("SELECT first(user) FROM events", "first() goes by time, and _timestamp is not there"),
        ("SELECT session_window(at, '5 minutes'), count(*) FROM events GROUP BY 1", "session"),
        ("SELECT DISTINCT count(*) FROM events GROUP BY page", "DISTINCT beside its aggregate"),
    ],
)  # fmt: skip
def test_queries_that_do_not_combine(spark, events, query, reason):
    with pytest.raises(NotCombinable) as caught:
        Algebra(analyze(spark.sql(query)))
    assert reason in str(caught.value)
