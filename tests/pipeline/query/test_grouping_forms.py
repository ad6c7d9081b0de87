"""The ways to say what a query groups by, in both architectures: each must give Spark's answer over all records.

Lambda keeps groups by what they are grouped by; Kappa keeps them by the output columns that show it. The Kappa sink is
played here as it works: the rows of each micro-batch replace those with the same key.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from kappa_harness import KappaHarness
from lambda_harness import quick as quick

from headrace import Admin, Producer
from headrace.pipeline.decoding.events import decode_frame, good_rows
from headrace.pipeline.kappa.hidden_groups import mark_hidden_groups
from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.maintenance.checks import check_view
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import HIDDEN, analyze
from headrace.pipeline.query.row_keys import key_columns, output_mode
from headrace.pipeline.query.validation import missing_topics
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.serving.keys import canonical_keys
from headrace.pipeline.spark.source.data_source import spark_schema

pytestmark = pytest.mark.timeout(600)
SCHEMA = """customer STRUCT<id: BIGINT, name: STRING, home: STRUCT<city: STRING>>, tags ARRAY<STRING>,
            labels MAP<STRING, STRING>, items ARRAY<STRUCT<sku: STRING, n: INT>>, page STRING, at TIMESTAMP"""
ORDERS = [
    {"customer": {"id": 1, "name": "ann", "home": {"city": "Ulm"}}, "tags": ["x"], "labels": {"a": "1"}, "page": "p"},
    {"customer": {"id": 1, "name": "Ann", "home": {"city": "Bonn"}}, "tags": ["y", "x"], "items": [{"sku": "s"}]},
    {"customer": {"id": None, "name": "bob"}, "labels": {"a": None}, "items": [{"sku": "s", "n": 2}, {"sku": "t"}]},
    {"customer": {"name": "bob"}, "tags": ["x"], "page": "P", "at": "2026-11-16T08:00:01Z"},
    {"customer": None, "tags": ["z"], "page": "p", "at": "2026-11-16T08:59:59Z"},
    {"customer": {}, "tags": [None], "labels": {"a": "1", "b": "2"}, "at": "2026-11-16T09:00:00Z"},
    {"customer": {"id": 2, "home": {"city": "Ulm"}}, "tags": ["x"], "items": [{"sku": None, "n": 1}], "page": "q"},
    {"customer": {"id": 1, "name": "ann", "home": {"city": "Ulm"}}, "tags": ["x"], "labels": {"a": "1"}, "page": "p"},
]
#: Queries without FROM and GROUP BY, what they group by, and the output columns that identify rows.
FORMS = [
    ("customer.id AS cid", "customer.id", ("cid",)),
    ("customer.id AS cid", "cid", ("cid",)),
    ("customer.id AS cid", "1", ("cid",)),
    ("customer.id AS cid", "ALL", ("cid",)),
    ("customer.id", "customer.id", ("id",)),
    ("o.customer.id", "o.customer.id", ("id",)),
    ("customer.home.city, customer.id AS id", "1, 2", ("city", "id")),
    ("customer.id, customer.name", "customer.name, customer.id", ("id", "name")),
    ("upper(customer.name) AS u", "upper(customer.name)", ("u",)),
    ("upper(customer.name)", "1", ("upper(customer.name)",)),
    ("try_element_at(tags, 1) AS tag", "tag", ("tag",)),
    ("labels['a'] AS a", "labels['a']", ("a",)),
    ("labels.a", "labels.a", ("a",)),
    ("get(items, 0).sku AS sku", "get(items, 0).sku", ("sku",)),
    ("customer.id IS NULL AS anonymous, 'x' AS label", "customer.id IS NULL, 'x'", ("anonymous", "label")),
    ("page", "page, page", ("page",)),
    ("window(at, '1 hour').start AS hour", "window(at, '1 hour')", ("hour",)),
    ("customer.id AS cid", "customer.id HAVING count(*) > 1", ("cid",)),
    ("customer.id AS cid", "cid HAVING customer.id > 0", ("cid",)),
]  # fmt: skip
QUERIES = [
    *((f"SELECT {shown}, count(*) AS n FROM orders o GROUP BY {keys}", expected) for shown, keys, expected in FORMS),
    ("SELECT cid, n FROM (SELECT customer.id AS cid, count(*) AS n FROM orders GROUP BY 1) WHERE n > 1", ("cid",)),
    ("WITH o AS (SELECT customer.id AS cid FROM orders) SELECT cid, count(*) AS n FROM o GROUP BY cid", ("cid",)),
    ("SELECT item.sku, sum(item.n) AS n FROM orders LATERAL VIEW explode(items) AS item GROUP BY item.sku", ("sku",)),
    ("SELECT DISTINCT customer.id FROM orders", ("id",)),
]


def _validate(spark, definition, topics):
    """All problems of a view: those of its topics, and those that Spark finds."""
    return missing_topics(definition, topics) + check_view(spark, definition).problems


def _view(query: str, architecture: str) -> ViewDefinition:
    decode = Decode("json", SCHEMA)
    return ViewDefinition("v", ("orders",), "", architecture, FileText("v.sql", query), decode, file=Path("v.toml"))


@pytest.fixture(scope="module")
def orders(spark):
    """The records in two parts, and all of them, decoded."""
    decode = Decode("json", SCHEMA)
    rows = [(None, json.dumps(value).encode(), "orders", 0, at, None, 0) for at, value in enumerate(ORDERS)]

    def decoded(some):
        raw = spark.createDataFrame(some, spark_schema(include_headers=False))
        return good_rows(decode_frame(decode, raw)).localCheckpoint()

    return [decoded(rows[:4]), decoded(rows[4:]), decoded(rows)]


def _by_lambda(spark, view: ViewDefinition, first, second) -> pa.Table:
    algebra = Algebra(analyze(apply_query(spark, view, empty_events(spark, view))))
    final = algebra.final(algebra.merge([algebra.collect(first), algebra.collect(second)]))
    return final.filter(pc.invert(final.column(HIDDEN))).select(algebra.plan.output)


def _by_kappa(spark, view: ViewDefinition, first, everything) -> pa.Table:
    """After two micro-batches; the second one gives all groups, which is more than those that changed."""
    table: dict[str, dict[str, object]] = {}
    for prefix in (first, everything):
        query = mark_hidden_groups(apply_query(spark, view, prefix))
        rows = query.toArrow()
        if output_mode(query) == "complete":
            table.clear()
        table |= dict(zip(canonical_keys(rows, key_columns(view, query)).to_pylist(), rows.to_pylist(), strict=True))
    shown = pa.Table.from_pylist(list(table.values()), rows.schema)
    return shown.filter(pc.invert(shown.column(HIDDEN))).drop([HIDDEN]) if HIDDEN in shown.schema.names else shown


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(("query", "keys"), QUERIES)
def test_both_architectures_give_sparks_answer(spark, orders, query, keys):
    first, second, everything = orders
    for architecture in ("lambda", "kappa"):
        assert _validate(spark, _view(query, architecture), ["orders"]) == []
    view = _view(query, "kappa")
    stream = apply_query(spark, view, empty_events(spark, view, is_stream=True))
    assert key_columns(view, stream) == keys
    assert key_columns(replace(view, key=keys), stream) == keys, "a key that says the same is as good"
    expected = _sorted(apply_query(spark, view, everything).toArrow())
    assert len(expected) > 1
    assert _sorted(_by_lambda(spark, _view(query, "lambda"), first, second)) == expected
    assert _sorted(_by_kappa(spark, view, first, everything)) == expected


@pytest.mark.parametrize(
    ("query", "told_by"),
    [
        ("SELECT customer.id, count(*) AS n FROM orders GROUP BY customer", "orders.customer"),
        ("SELECT c.id, n FROM (SELECT customer AS c, count(*) AS n FROM orders GROUP BY 1)", "orders.customer"),
        ("SELECT customer.home.city, count(*) AS n FROM orders GROUP BY customer.home", "orders.customer.`home`"),
        ("SELECT concat(customer.id, '') AS c, count(*) AS n FROM orders GROUP BY customer.id", "orders.customer.`id`"),
        ("SELECT upper(page) AS p, count(*) AS n FROM orders GROUP BY page", "orders.page"),
    ],
)
def test_a_part_of_a_key_does_not_tell_rows_of_a_stream_apart(spark, query, told_by):
    chosen = check_view(spark, replace(_view(query, "kappa"), maintain="touched")).maintenance
    assert chosen is not None
    assert f"rows are identified by {told_by}, which is not an output column" in chosen.refused[-1].why


def test_a_null_is_another_group_than_a_struct_of_nulls(spark, orders):
    query = "SELECT customer.home AS home, count(*) AS n FROM orders GROUP BY customer.home"
    chosen = check_view(spark, _view(query, "lambda")).maintenance
    assert chosen is not None
    why = "it groups by orders.customer.`home`, which is a struct that may be NULL: group by its fields"
    assert why in chosen.refused[0].why
    assert _validate(spark, _view(query, "kappa"), ["orders"]) == []


def test_a_stream_of_one_of_two_topics_grouped_by_nested_fields(spark, kafka, sqlite_url, tmp_path):
    harness = KappaHarness(spark, kafka.bootstrap_servers, sqlite_url, tmp_path)
    harness.way = KappaStream
    try:
        query = f"""SELECT customer.id, upper(customer.name) AS who, labels['a'] AS a, count(*) AS n
                    FROM {harness.topic} GROUP BY customer.id, who, 3"""
        other = f"{harness.topic}-other"
        with (
            Admin(bootstrap_servers=harness.bootstrap) as admin,
            Producer(bootstrap_servers=harness.bootstrap) as producer,
        ):
            admin.create_topic(other)
            producer.send(other, json.dumps(ORDERS[0]).encode())
        definition = harness.definition(query, topics=(harness.topic, other), decode=Decode("json", SCHEMA))
        version = harness.apply(definition)
        harness.produce(*ORDERS[:4])
        harness.run_once(version)
        harness.produce(*ORDERS[4:])
        harness.run_once(version)
        assert sorted(harness.rows(version), key=repr) == sorted(harness.truth(definition, version), key=repr)
        assert (1, "ANN", "1", 2) in harness.rows(version)
        assert harness.progress(version).events == len(ORDERS) + 1, "the records of both topics are read"
    finally:
        harness.close()
