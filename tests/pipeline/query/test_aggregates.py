"""Partial results over ranges, merged and finished, equal Spark's answer over everything: Lambda depends on that."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lambda_harness import quick as quick
from pyspark.errors import ArithmeticException
from pyspark.sql.types import StructType

from headrace.pipeline.query.aggregates import Algebra, arrow_schema
from headrace.pipeline.query.plan import HIDDEN, SortBy, analyze

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
    count(*) AS n, count(ms) AS n_ms, count(page, ms) AS n_both, count(*) FILTER (WHERE ms > 0) AS n_positive,
    sum(ms) AS sum_ms, sum(d) AS sum_d, sum(price) AS sum_price, sum(ms) FILTER (WHERE b) AS sum_b,
    min(ms) AS min_ms, max(ms) AS max_ms, min(d) AS min_d, max(d) AS max_d, min(user) AS min_user, max(user) AS max_u,
    min(at) AS min_at, max(at) AS max_at, min(price) AS min_price, max(price) AS max_price, max(day) AS max_day,
    min(b) AS min_b, max(DISTINCT ms) AS max_distinct, count_if(b) AS n_b, bool_and(b) AS every_b, bool_or(b) AS any_b,
    avg(ms) AS avg_ms, avg(d) AS avg_d, avg(price) AS avg_price, avg(CAST(ms % 7 AS INT)) AS avg_int,
    avg(price) FILTER (WHERE b) AS avg_b,
    approx_count_distinct(user) AS users, approx_count_distinct(d) AS ds, approx_count_distinct(ms, 0.01) AS mss,
    approx_count_distinct(price) FILTER (WHERE b) AS prices
"""
BY_PLACE = "struct(_timestamp, _topic, _partition, _offset)"


def _by(value: str, order: str, how: str, condition: str = "true") -> str:
    place = f"struct({order}, _timestamp, _topic, _partition, _offset)"
    return f"{how}({value}, CASE WHEN {order} IS NOT NULL AND {condition} THEN {place} END)"


#: A query, and what it must be equal to where Spark's own answer is left to chance.
QUERIES = {
    "in all": (f"SELECT {SIMPLE} FROM events", None),
    "by time": (
        """SELECT page, first(user) AS f, last(user) AS l, any_value(user) IGNORE NULLS AS fn,
           last(ms) FILTER (WHERE b) AS lb, max_by(user, ms) AS mx, min_by(user, d) AS mn,
           max_by(price, at) FILTER (WHERE b) AS mb
           FROM (SELECT page, user, ms, b, d, price, at FROM events) GROUP BY page""",
        f"""SELECT page, min_by(user, {BY_PLACE}) AS f, max_by(user, {BY_PLACE}) AS l,
            min_by(user, CASE WHEN user IS NOT NULL THEN {BY_PLACE} END) AS fn,
            max_by(ms, CASE WHEN b THEN {BY_PLACE} END) AS lb, {_by("user", "ms", "max_by")} AS mx,
            {_by("user", "d", "min_by")} AS mn, {_by("price", "at", "max_by", "b")} AS mb
            FROM events GROUP BY page""",
    ),
    "expressions": (
        """WITH busy AS (SELECT upper(page) AS p, ms, d, at FROM events WHERE ms IS NOT NULL)
           SELECT p AS name, date_trunc('MINUTE', at) AS minute, sum(ms) / count(*) AS mean, max(ms) - min(ms) AS width,
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
def algebra_of(spark):
    """The algebra of a query over the events, made once."""
    known: dict[str, Algebra] = {}

    def make(query: str) -> Algebra:
        if query not in known:
            spark.createDataFrame([], SCHEMA).createOrReplaceTempView("events")
            known[query] = Algebra(analyze(spark.sql(query)))
        return known[query]

    return make


def _frame(spark, rows):
    """By way of Arrow: without a Python process for every frame."""
    columns = arrow_schema(StructType.fromDDL(SCHEMA))
    flat = [(*value, "clicks", index % 2, index, at) for index, (value, at, _) in enumerate(rows)]
    table = pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in flat], columns)
    return spark.createDataFrame(table).coalesce(1)


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
    """By the keys, which come first; what follows differs by rounding only."""

    def place(row: list[object]) -> list[str]:
        return [f"{value + 0.0:.4g}" if isinstance(value, float) else repr(value) for value in row]

    return sorted((list(row.values()) for row in table.to_pylist()), key=place)


def _assert_same(ours: pa.Table, sparks: pa.Table) -> None:
    assert ours.schema.names == sparks.schema.names
    assert [field.type for field in ours.schema] == [field.type for field in sparks.schema]
    left, right = _sorted_rows(ours), _sorted_rows(sparks)
    assert len(left) == len(right), (left, right)
    for a, b in zip(left, right, strict=True):
        wrong = {name: (x, y) for name, x, y in zip(ours.schema.names, a, b, strict=True) if not _same(x, y)}
        assert not wrong, (wrong, a, b)


@pytest.mark.parametrize("name", QUERIES)
def test_answers_over_ranges_make_up_the_answer_over_everything(spark, algebra_of, name):
    @settings(max_examples=4, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(rows=events)
    def check(rows):
        _assert_same(_combined_answer(spark, algebra_of(QUERIES[name][0]), rows), _spark_answer(spark, name, rows))

    check()


@pytest.mark.parametrize("name", QUERIES)
def test_nothing_at_all(spark, algebra_of, name):
    algebra = algebra_of(QUERIES[name][0])
    nothing = algebra.final(algebra.merge([]))
    shown = nothing.filter(pa.compute.invert(nothing.column(HIDDEN)))
    _assert_same(shown.select(algebra.plan.output), _spark_answer(spark, name, []))


def _row(page: str | None, ms: int | None, d: float | None = None, price: str | None = None, seconds: int = 0):
    value = (page, None, ms, d, None if price is None else Decimal(price), None, None, None)
    return value, START + timedelta(seconds=seconds), 0


def _final(spark, algebra: Algebra, rows) -> pa.Table:
    return algebra.final(algebra.merge([algebra.collect(_frame(spark, rows))]))


def test_hidden_groups_keep_their_place_and_are_not_computed(spark, algebra_of):
    query = """SELECT page, 100 DIV total AS share, n FROM
               (SELECT page, sum(ms) AS total, count(*) AS n FROM events GROUP BY page)
               WHERE total <> 0 ORDER BY 1 DIV total"""
    algebra = algebra_of(query)
    rows = [_row("b", 5), _row("zero", 0), _row("a", 20), _row("null", None)]
    merged = algebra.merge([algebra.collect(_frame(spark, rows))])
    final = algebra.final(merged).to_pylist()
    assert [row["page"] for row in final] == merged.column("_k0").to_pylist()
    assert {row["page"]: (row["share"], row["_hidden"]) for row in final} == {
        "b": (20, False), "zero": (None, True), "a": (5, False), "null": (None, True),
    }  # fmt: skip
    assert algebra.plan.order == (SortBy("_order_0", False, True),)


def test_plain_outputs_need_no_spark_job(spark, algebra_of):
    algebra = algebra_of("SELECT count(*) AS n, page AS p, avg(ms) AS a FROM events GROUP BY page ORDER BY max(ms)")
    merged = algebra.merge([algebra.collect(_frame(spark, [_row("x", 1), _row("x", 2)]))])
    jobs = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("final", "")
    assert algebra.final(merged).to_pylist() == [{"n": 2, "p": "x", "a": 1.5, "_order_0": 2, "_hidden": False}]
    assert list(jobs.getJobIdsForGroup("final")) == []
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def test_decimals_are_exact_and_sums_that_leave_64_bits_raise(spark, algebra_of):
    algebra = algebra_of("SELECT sum(price) AS s, avg(price) AS a, sum(ms) AS m FROM events")
    one = algebra.collect(_frame(spark, [_row("x", 2**62, price="9999999999.99"), _row("x", 1, price="0.01")]))
    (row,) = algebra.final(algebra.merge([one] * 1)).to_pylist()
    assert (row["s"], row["a"], row["m"]) == (Decimal("10000000000.00"), Decimal("5000000000.000000"), 2**62 + 1)
    with pytest.raises(ArithmeticException, match="a sum is too large for the type int64"):
        algebra.merge([one] * 2)
    assert algebra.exact_columns == ("_p0", "_p1_sum")


def test_decimals_that_leave_their_type_raise_as_in_spark(spark, algebra_of):
    events = "(SELECT page, CAST(ms AS DECIMAL(38, 0)) * 9000000000000000000 AS wide FROM events)"
    sums = algebra_of(f"SELECT sum(wide) AS s FROM {events}")
    large = sums.collect(_frame(spark, [_row("x", 9 * 10**18)]))
    assert sums.merge([large]).to_pylist() == [{"_p0": Decimal(81 * 10**36)}]
    with pytest.raises(ArithmeticException, match="a sum is too large for the type decimal128"):
        sums.merge([large] * 2)
    averages = algebra_of(f"SELECT avg(wide) AS a FROM {events}")
    merged = averages.merge([averages.collect(_frame(spark, [_row("x", 9 * 10**18)]))])
    with pytest.raises(ArithmeticException, match="an average is too large for the type decimal128"):
        averages.final(merged)
    _frame(spark, [_row("x", 9 * 10**18)] * 2).createOrReplaceTempView("events")
    for function in ("sum", "avg"):
        with pytest.raises(ArithmeticException):
            spark.sql(f"SELECT {function}(wide) FROM {events}").collect()


def test_partial_tables_survive_a_database_without_nan(spark, algebra_of):
    algebra = algebra_of("SELECT d, sum(d) AS s, max(d) AS m FROM events GROUP BY d")
    partial = algebra.collect(_frame(spark, [_row("x", 1, math.nan), _row("x", 1, 2.5), _row("x", 1, None)]))
    stored = algebra.stored(partial)
    assert stored.schema == algebra.stored_schema
    assert not any(pa.types.is_floating(field.type) for field in stored.schema)
    back = algebra.loaded(stored)
    assert back.schema == algebra.schema
    assert str(back.to_pylist()) == str(partial.to_pylist())
    assert len(algebra.merge([partial, back])) == 3


#: Distinct values per group: none, few, and around the limits of linear counting and of the correction of the bias.
CARDINALITIES = (1, 7, 50, 100, 400, 700, 1800, 2500, 6000, 20_000, 100_000)
RELATIVE_ERRORS = (0.39, 0.1, 0.05, 0.02)


def test_many_distinct_values_are_counted_as_spark_counts_them(spark):
    """Over 3 pieces in any grouping; and of one piece that nobody has merged, which is what a first batch stores."""
    groups = " UNION ALL ".join(f"SELECT {size} AS k, id AS v FROM range({size})" for size in CARDINALITIES)
    rows = spark.sql(f"{groups} UNION ALL SELECT 0, NULL").localCheckpoint()
    functions = [f"approx_count_distinct(v, {error}) AS e{at}" for at, error in enumerate(RELATIVE_ERRORS)]
    query = f"SELECT k, {', '.join(functions)} FROM numbers GROUP BY k"
    spark.createDataFrame([], rows.schema).createOrReplaceTempView("numbers")
    algebra = Algebra(analyze(spark.sql(query)))
    rows.createOrReplaceTempView("numbers")
    expected = spark.sql(query).toArrow().sort_by("k").to_pydict()
    whole = algebra.collect(rows)
    one, two, three = (algebra.collect(rows.where(f"coalesce(v, 0) % 3 = {number}")) for number in range(3))
    merged = {
        "a whole": whole,
        "merged": algebra.merge([one, two, three]),
        "in steps": algebra.merge([algebra.merge([three, one]), two]),
        "of more than there is": algebra.merge([whole, two, two]),
    }
    for how, table in merged.items():
        assert algebra.final(table).drop([HIDDEN]).sort_by("k").to_pydict() == expected, how
    sizes = pc.binary_length(whole.column("_p2"))
    assert pc.max(sizes).as_py() <= 4 * 512, "one value per register"


def test_sketches_that_earlier_versions_stored_are_counted_right(spark, algebra_of):
    """They may hold several values of a register."""
    registers = [(5, 1), (5, 4), (7, 2), (5, 4), (5, 2)]
    stored = b"".join((register << 6 | value).to_bytes(4, "big") for register, value in registers)
    clean = b"".join((register << 6 | value).to_bytes(4, "big") for register, value in [(5, 4), (7, 2)])
    algebra = algebra_of("SELECT approx_count_distinct(user) AS users FROM events")
    found = [algebra.final(pa.table([[each]], schema=algebra.schema)).to_pylist() for each in (stored, clean)]
    assert found[0] == found[1] == [{"users": 2, "_hidden": False}]
