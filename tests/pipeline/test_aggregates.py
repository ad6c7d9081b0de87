"""The property that Lambda rests on: answers over ranges, merged and finished, are Spark's answer over everything."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.pipeline.aggregates import Algebra
from headrace.pipeline.plan import HIDDEN, SortBy, analyze

pytestmark = pytest.mark.xdist_group("spark")

SCHEMA = (
    "page STRING, user STRING, ms BIGINT, d DOUBLE, price DECIMAL(12, 2), b BOOLEAN, at TIMESTAMP, day DATE, "
    "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
)
START = datetime(2026, 11, 16, 8, tzinfo=UTC)
times = st.integers(0, 3600).map(lambda seconds: START + timedelta(seconds=seconds))
doubles = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, 1.5]), st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda x: round(x, 3))
)
a_value = st.tuples(
    st.sampled_from(["home", "about", "", 'quo"te', None]),
    st.one_of(st.none(), st.sampled_from(["ann", "bob", "ünü"]), st.text("abc", max_size=3)),
    st.one_of(st.none(), st.integers(-(2**40), 2**40), st.integers(-3, 3)),
    st.one_of(st.none(), doubles),
    st.one_of(st.none(), st.decimals(-(10**9), 10**9, places=2)),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), times),
    st.one_of(st.none(), st.dates(START.date(), START.date() + timedelta(days=3))),
)
#: Each event with the range that it falls into.
events = st.lists(st.tuples(a_value, times, st.integers(0, 2)), max_size=40)

SIMPLE = """
    count(*) AS n, count(ms) AS n_ms, count(page, ms) AS n_both, sum(ms) AS sum_ms, sum(d) AS sum_d, sum(price) AS sum_price,
    min(ms) AS min_ms, max(ms) AS max_ms, min(d) AS min_d, max(d) AS max_d, min(user) AS min_user, max(user) AS max_user,
    min(at) AS min_at, max(at) AS max_at, min(price) AS min_price, max(price) AS max_price, max(day) AS max_day,
    min(b) AS min_b, avg(ms) AS avg_ms, avg(d) AS avg_d, avg(price) AS avg_price, avg(CAST(ms AS INT) % 7) AS avg_int,
    count_if(b) AS n_b, bool_and(b) AS every_b, bool_or(b) AS any_b, max(DISTINCT ms) AS max_distinct,
    count(*) FILTER (WHERE ms > 0) AS n_positive, sum(ms) FILTER (WHERE b) AS sum_b, avg(price) FILTER (WHERE b) AS avg_b,
    approx_count_distinct(user) AS users, approx_count_distinct(d) AS ds, approx_count_distinct(ms, 0.01) AS mss,
    approx_count_distinct(price) FILTER (WHERE b) AS prices
"""
SIMPLE = SIMPLE.replace("CAST(ms AS INT) % 7", "CAST(ms % 7 AS INT)")
BY_PLACE = "struct(_timestamp, _topic, _partition, _offset)"


def _by(value: str, order: str, how: str, condition: str = "true") -> str:
    place = f"CASE WHEN {order} IS NOT NULL AND {condition} THEN struct({order}, _timestamp, _topic, _partition, _offset) END"
    return f"{how}({value}, {place})"


#: A query, and what it must be equal to where Spark's own answer is left to chance.
QUERIES = {
    "by page": (f"SELECT page, {SIMPLE} FROM events GROUP BY page", None),
    "in all": (f"SELECT {SIMPLE} FROM events", None),
    "by time": (
        """SELECT page, first(user) AS f, last(user) AS l, first(user, true) AS fn, last(ms) FILTER (WHERE b) AS lb,
           max_by(user, ms) AS mx, min_by(user, d) AS mn, max_by(price, at) FILTER (WHERE b) AS mb
           FROM (SELECT page, user, ms, b, d, price, at FROM events) GROUP BY page""",
        f"""SELECT page, min_by(user, {BY_PLACE}) AS f, max_by(user, {BY_PLACE}) AS l,
            min_by(user, CASE WHEN user IS NOT NULL THEN {BY_PLACE} END) AS fn,
            max_by(ms, CASE WHEN b THEN {BY_PLACE} END) AS lb, {_by("user", "ms", "max_by")} AS mx,
            {_by("user", "d", "min_by")} AS mn, {_by("price", "at", "max_by", "b")} AS mb
            FROM events GROUP BY page""",
    ),
    "expressions": (
        """WITH busy AS (SELECT upper(page) AS p, ms, d, at FROM events WHERE ms IS NOT NULL)
           SELECT p AS name, date_trunc('MINUTE', at) AS minute, sum(ms) / count(*) AS mean, max(ms) - min(ms) AS spread,
           concat(p, ':', count(*)) AS label, CASE WHEN max(d) > 0 THEN 'up' ELSE 'down' END AS sign
           FROM busy GROUP BY p, date_trunc('MINUTE', at) HAVING count(*) > 1 OR max(ms) > 2""",
        None,
    ),
    "windows": (
        """SELECT window(at, '10 minutes', '5 minutes') AS w, d, day, count(*) AS n, sum(price) AS total
           FROM events GROUP BY window(at, '10 minutes', '5 minutes'), d, day""",
        None,
    ),
    "exploded": (
        """SELECT letter, count(*) AS n FROM events LATERAL VIEW explode(split(user, '')) AS letter
           GROUP BY letter HAVING n > 1""",
        None,
    ),
    "distinct": ("SELECT DISTINCT page, b FROM events", None),
    "rollup": ("SELECT page, b, sum(ms) AS s FROM events GROUP BY ROLLUP (page, b)", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def algebras(spark) -> dict[str, Algebra]:
    spark.createDataFrame([], SCHEMA).createOrReplaceTempView("events")
    return {name: Algebra(analyze(spark.sql(query))) for name, (query, _) in QUERIES.items()}


def _frame(spark, rows):
    flat = [(*value, "clicks", index % 2, index, at) for index, (value, at, _) in enumerate(rows)]
    return spark.createDataFrame(flat, SCHEMA).coalesce(1)


def _spark_answer(spark, name: str, rows) -> pa.Table:
    _frame(spark, rows).createOrReplaceTempView("events")
    query, expected = QUERIES[name]
    return spark.sql(expected or query).toArrow()


def _combined_answer(spark, algebra: Algebra, rows) -> pa.Table:
    ranges = [_frame(spark, [row for row in rows if row[2] == number]) for number in range(3)]
    # One job for all ranges; that each is a row of its own is what matters.
    partials = reduce(lambda a, b: a.unionAll(b), [algebra.partial(each) for each in ranges])
    table = partials.toArrow().cast(algebra.schema)
    merged = algebra.merge([algebra.merge([table.slice(0, len(table) // 2)]), table.slice(len(table) // 2)])
    final = algebra.final(merged)
    assert len(final) == len(merged)
    shown = final.filter(pa.compute.invert(final.column(HIDDEN)))
    return shown.select(algebra.plan.output)


def _same(ours: object, sparks: object) -> bool:
    if isinstance(ours, float) and isinstance(sparks, float):
        return (math.isnan(ours) and math.isnan(sparks)) or math.isclose(ours, sparks, rel_tol=1e-9, abs_tol=1e-6)
    return type(ours) is type(sparks) and ours == sparks


def _sorted_rows(table: pa.Table) -> list[list[object]]:
    def plain(value: object) -> object:
        return value + 0.0 if isinstance(value, float) else value  # -0.0 is 0.0

    rows = [[plain(value) for value in row.values()] for row in table.to_pylist()]
    return sorted(
        rows, key=lambda row: [repr(value) for value in row if not isinstance(value, float) or value == 0] + [repr(row)]
    )


def _assert_same(ours: pa.Table, sparks: pa.Table) -> None:
    assert ours.schema.names == sparks.schema.names
    assert [field.type for field in ours.schema] == [field.type for field in sparks.schema]
    left, right = _sorted_rows(ours), _sorted_rows(sparks)
    assert len(left) == len(right), (left, right)
    for a, b in zip(left, right, strict=True):
        wrong = {name: (x, y) for name, x, y in zip(ours.schema.names, a, b, strict=True) if not _same(x, y)}
        assert not wrong, (wrong, a, b)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_over_ranges_make_up_the_answer_over_everything(spark, algebras, name):
    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(rows=events)
    def check(rows):
        _assert_same(_combined_answer(spark, algebras[name], rows), _spark_answer(spark, name, rows))

    check()


@pytest.mark.parametrize("name", QUERIES)
def test_nothing_at_all(spark, algebras, name):
    algebra = algebras[name]
    nothing = algebra.final(algebra.merge([]))
    _assert_same(
        nothing.filter(pa.compute.invert(nothing.column(HIDDEN))).select(algebra.plan.output),
        _spark_answer(spark, name, []),
    )
