"""Partial results that are computed without a Spark job equal those of a Spark job."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from headrace.pipeline.decoding.events import bad_rows, decode_frame, good_rows
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import HIDDEN, analyze
from headrace.pipeline.query.row_partials import RowPartials, bad_records
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.spark.source.range_reader import COLUMNS, spark_arrow_schema

pytestmark = pytest.mark.timeout(300)
SCHEMA = "page STRING, user STRING, ms BIGINT, d DOUBLE, price DECIMAL(12, 2), b BOOLEAN, at TIMESTAMP"
START = datetime(2026, 11, 16, 8, tzinfo=UTC)
#: Records of all kinds, twice over, with what does not decode among them.
VALUES: list[bytes | None] = [
    b'{"page":"home","user":"ann","ms":5,"d":1.5,"price":"9.99","b":true,"at":"2026-11-16T08:00:01Z"}',
    b'{"page":"home","user":"bob","ms":-7,"d":-0.0,"price":"0.01","b":false,"at":"2026-11-16T08:07:00Z"}',
    b'{"page":null,"user":"ann","ms":null,"d":2.25,"b":true}',
    b'{"page":"about","ms":4611686018427387904,"at":"2026-11-16T08:00:02Z"}',
    b"{bad",
    None,
    b"",
    b"\xff\xfe",
    b'{"page":"about","user":"","ms":"no number"}',
    b'{"page":"quo\\"te","user":"\xc3\xbcn\xc3\xbc","ms":0,"d":0.0,"price":"-3.50","b":null}',
]
SIMPLE = """count(*) AS n, count(ms) AS n_ms, count(page, ms) AS n_both, count(*) FILTER (WHERE ms > 0) AS n_positive,
    sum(ms) AS sum_ms, sum(d) AS sum_d, sum(price) AS sum_price, sum(ms) FILTER (WHERE b) AS sum_b, min(d) AS min_d,
    max(user) AS max_u, min(at) AS min_at, max(price) AS max_price, count_if(b) AS n_b, bool_and(b) AS every_b,
    bool_or(b) AS any_b, avg(ms) AS avg_ms, avg(d) AS avg_d, avg(price) FILTER (WHERE b) AS avg_price,
    approx_count_distinct(user) AS users, approx_count_distinct(ms, 0.01) FILTER (WHERE b) AS mss"""
QUERIES = {
    "by page": f"SELECT page, {SIMPLE} FROM events GROUP BY page",
    "in all": f"SELECT {SIMPLE} FROM events",
    "by time": """SELECT page, first(user) AS f, last(user) AS l, any_value(user) IGNORE NULLS AS fn,
                  max_by(user, ms) AS mx, min_by(price, d) FILTER (WHERE b) AS mn
                  FROM (SELECT page, user, ms, b, d, price FROM events) GROUP BY page""",
    "expressions": """WITH busy AS (SELECT upper(page) AS p, 100 DIV ms AS share, at FROM events WHERE ms <> 0)
                      SELECT p AS name, date_trunc('MINUTE', at) AS minute, sum(share) / count(*) AS mean
                      FROM busy WHERE share < 50 GROUP BY p, date_trunc('MINUTE', at) HAVING count(*) > 1""",
    "windows": """SELECT window(at, '10 minutes') AS w, d, count(*) AS n
                  FROM events GROUP BY window(at, '10 minutes'), d""",
    "distinct": "SELECT DISTINCT page, b FROM events",
    "places": """SELECT _topic, _partition, max(_offset) AS o, max(_timestamp) AS t
                 FROM events GROUP BY _topic, _partition""",
}  # fmt: skip
JOBS = {
    "exploded": """SELECT letter, count(*) AS n
                   FROM events LATERAL VIEW explode(split(user, '')) AS letter GROUP BY letter""",
    "sliding windows": """SELECT window(at, '10 minutes', '5 minutes') AS w, count(*) AS n
                          FROM events GROUP BY window(at, '10 minutes', '5 minutes')""",
    "rollup": "SELECT page, b, sum(ms) AS s FROM events GROUP BY ROLLUP (page, b)",
}  # fmt: skip


#: Compiling such queries takes longer than running them over ten rows.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(autouse=True)
def interpreted(spark):
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def _view(query: str, decode: Decode | None = None) -> ViewDefinition:
    return ViewDefinition(
        name="pages",
        topics=("clicks",),
        pattern="",
        architecture="lambda",
        query=FileText("pages.sql", query),
        decode=decode or Decode("json", SCHEMA),
        file=Path("pages.toml"),
    )


def _algebra(spark, view: ViewDefinition) -> Algebra:
    return Algebra(analyze(apply_query(spark, view, empty_events(spark, view))))


def _records(values: list[bytes | None]) -> pa.Table:
    count = len(values)
    columns = {
        "key": pa.array([f"k{number}".encode() for number in range(count)], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["clicks"] * count),
        "partition": pa.array([number % 2 for number in range(count)], pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([START + timedelta(seconds=n) for n in range(count)], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
    }
    return pa.table([columns[name] for name in COLUMNS], schema=spark_arrow_schema(COLUMNS))


def _sorted(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize("name", QUERIES)
def test_rows_merged_are_what_a_job_gives(spark, name):
    view = _view(QUERIES[name])
    algebra = _algebra(spark, view)
    prepared = RowPartials.prepare(spark, view, algebra)
    assert prepared is not None
    records = _records(VALUES)
    ours = prepared.compute(records)
    decoded = decode_frame(view.decode, spark.createDataFrame(records).coalesce(1))
    jobs = algebra.merge([algebra.collect(good_rows(decoded))])
    assert ours.rows.schema == jobs.schema
    assert _sorted(algebra.final(ours.rows).drop([HIDDEN])) == _sorted(algebra.final(jobs).drop([HIDDEN]))
    bad = bad_records(records, ours.bad)
    expected = {row["_offset"]: row["_error"] for row in bad_rows(decoded).collect()}
    assert dict(zip(bad["offset"].to_pylist(), bad["reason"].to_pylist(), strict=True)) == expected
    assert set(expected) == {4, 5, 6, 7, 8}


@pytest.mark.parametrize("name", JOBS)
def test_what_makes_several_rows_of_one_needs_a_job(spark, name):
    view = _view(JOBS[name])
    assert RowPartials.prepare(spark, view, _algebra(spark, view)) is None


def test_formats(spark):
    csv = _view("SELECT page, sum(ms) AS s FROM events GROUP BY page", Decode("csv", "page STRING, ms BIGINT"))
    raw = _view("SELECT length(value) AS n, count(*) AS c FROM events GROUP BY length(value)", Decode("raw"))
    records = _records([b"a,1", b"a,2", b"bb,x", b"bb,9"])
    for view, expected, bad in ((csv, [("a", 3), ("bb", 9)], 1), (raw, [(3, 2), (4, 2)], 0)):
        prepared = RowPartials.prepare(spark, view, _algebra(spark, view))
        assert prepared is not None
        made = prepared.compute(records)
        assert sorted(tuple(row.values()) for row in made.rows.to_pylist()) == expected
        assert len(bad_records(records, made.bad)) == bad
    source = FileText("f.py", "def f(value): return {'page': value.decode(), 'ms': 1}", "f")
    python = replace(csv, decode=Decode("python", "page STRING, ms BIGINT", function=source))
    assert RowPartials.prepare(spark, python, _algebra(spark, python)) is None


def test_many_records_go_in_portions_and_none_is_nothing(spark, monkeypatch):
    monkeypatch.setattr("headrace.pipeline.query.row_functions._MAX_CALL_BYTES", 1000)
    spark.conf.set("spark.sql.codegen.factoryMode", "CODEGEN_ONLY")
    view = _view("SELECT page, count(*) AS n, max(_offset) AS last FROM events GROUP BY page")
    prepared = RowPartials.prepare(spark, view, _algebra(spark, view))
    assert prepared is not None
    assert "key" not in prepared.columns, "only what the query needs goes to the JVM"
    values = [json.dumps({"page": f"p{number % 3}"}).encode() for number in range(300)]
    made = prepared.compute(_records(values))
    assert sorted(tuple(row.values()) for row in made.rows.to_pylist()) == [
        ("p0", 100, 297), ("p1", 100, 298), ("p2", 100, 299),
    ]  # fmt: skip
    assert len(made.bad) == 300
    nothing = prepared.compute(_records([]))
    assert (len(nothing.rows), len(nothing.bad)) == (0, 0)


def test_what_a_query_cannot_compute_raises_as_it_does_in_a_job(spark):
    view = _view("SELECT page, sum(100 DIV ms) AS s FROM events GROUP BY page")
    prepared = RowPartials.prepare(spark, view, _algebra(spark, view))
    assert prepared is not None
    good, bad = _records([b'{"page":"a","ms":5}']), _records([b'{"page":"a","ms":0}'])
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        prepared.compute(bad)
    assert prepared.compute(good).rows.to_pylist() == [{"_k0": "a", "_p0": 20}]
