"""A query whose answer depends on chance, on the clock or on the place of a row is refused, with the way out."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import functions as F  # noqa: N812

from headrace.pipeline.query.determinism import nondeterminism


@pytest.fixture(scope="module")
def events(spark):
    frame = spark.createDataFrame([], "page STRING, ms BIGINT, at TIMESTAMP, tags ARRAY<STRING>, _offset BIGINT")
    frame.createOrReplaceTempView("for_determinism")
    yield frame
    spark.catalog.dropTempView("for_determinism")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT page, rand() AS r FROM t", "rand() has another value each time the query is computed: derive"),
        ("SELECT page, rand(7) AS r FROM t", "rand()"),
        ("SELECT page, count(*) AS n FROM t GROUP BY page, rand() > 0.5", "rand()"),
        ("SELECT uuid() AS id FROM t", "uuid()"),
        ("SELECT shuffle(tags) AS tags FROM t", "shuffle()"),
        ("SELECT sum(x) AS s FROM (SELECT randn() * ms AS x FROM t)", "randn()"),
        ("SELECT * FROM t WHERE at > current_timestamp()", "current_timestamp() has another value"),
        ("SELECT * FROM t WHERE at > now() - INTERVAL 1 DAY", "do it in the SQL that reads the view"),
        ("SELECT * FROM t WHERE date(at) = current_date", "current_date()"),
        ("SELECT localtimestamp() AS l FROM t", "localtimestamp()"),
        ("SELECT current_user() AS u FROM t", "write the name as a text"),
        ("SELECT monotonically_increasing_id() AS id FROM t", "use _topic, _partition and _offset"),
        ("SELECT spark_partition_id() AS id FROM t", "spark_partition_id()"),
        ("SELECT input_file_name() AS f FROM t", "input_file_name()"),
        ("SELECT * FROM t TABLESAMPLE (10 PERCENT)", "a sample has other rows each time"),
        ("SELECT page FROM t WHERE ms > (SELECT max(ms) * rand() FROM t)", "rand()"),
        ("SELECT page FROM t WHERE page IN (SELECT page FROM t WHERE at < now())", "now()"),
        ("WITH x AS (SELECT page, uuid() AS u FROM t) SELECT page FROM x JOIN t USING (page) WHERE u > 'a'", "uuid()"),
        ("SELECT page, row_number() OVER (PARTITION BY page ORDER BY rand()) AS n FROM t", "rand()"),
        (f"SELECT value FROM text.`{__file__}`", "it reads a file or a table outside of the log"),
        (f"SELECT page FROM t WHERE page IN (SELECT value FROM text.`{__file__}`)", "or write them into the query"),
        ("SELECT unix_timestamp() AS u FROM t", "current_timestamp()"),
        ("SELECT * FROM t WHERE at > 'now'", "as a time, 'now' has another value each time the query is computed: use"),
        ("SELECT * FROM t WHERE date(at) = to_date(' TODAY')", "'TODAY' has another value"),
        ("SELECT CAST(nvl('now', '') AS TIMESTAMP_NTZ) AS n FROM t", "'now' has another value"),
        ("SELECT page FROM t WHERE page IN (SELECT page FROM t WHERE at >= 'yesterday')", "'yesterday' has another"),
    ],
)
def test_refused(spark, events, query, reason):
    found = nondeterminism(spark.sql(re.sub(r"\bt\b", "for_determinism", query)))
    assert found is not None
    assert reason in found


@pytest.mark.parametrize(
    "query",
    [
        "SELECT page, count(*) AS n FROM t GROUP BY page",
        "SELECT page, collect_list(ms) AS l, collect_set(ms) AS s, first(ms) AS f, last(ms) AS e FROM t GROUP BY page",
        "SELECT page, mode(ms) AS m, any_value(ms) AS a, percentile_approx(ms, 0.5) AS p FROM t GROUP BY page",
        "SELECT page, lag(ms) OVER (PARTITION BY page ORDER BY at) AS l FROM t",
        "SELECT current_timezone() AS z, current_database() AS d, version() AS v, hash(page) AS h FROM t",
        "SELECT date_format(at, 'yyyy') AS y, to_date('2026-01-01') AS d, unix_timestamp(at) AS u FROM t",
        "SELECT explode(tags) AS tag FROM t",
        "SELECT 'now' AS word, at > 'epoch' AS later, CAST(page AS DATE) AS day FROM t WHERE page = 'today'",
    ],
)
def test_accepted(spark, events, query):
    assert nondeterminism(spark.sql(re.sub(r"\bt\b", "for_determinism", query))) is None


def test_a_function_that_says_that_it_is_not_deterministic(spark, events):
    own = F.udf(lambda page: page, "STRING")
    assert nondeterminism(events.select(own("page"))) is None
    found = nondeterminism(events.select(own.asNondeterministic()("page").alias("x")))
    assert found is not None
    assert "<lambda> is marked as not deterministic" in found
