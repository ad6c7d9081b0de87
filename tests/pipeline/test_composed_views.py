"""Views on views equal Spark's batch answer at every cut, in both architectures, over events, tables and changes."""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest
from composed_view_harness import Composed, ComposedView, by_hand, composed_definition, random_records
from lambda_harness import quick as quick
from query_grammar import SCHEMAS

from headrace.pipeline.project.decode import Decode
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.view_query import build
from headrace.pipeline.serving.database import Database
from headrace.pipeline.spark.source.data_source import spark_schema

REVENUE = "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer"
ORDERS, BOTH = frozenset({"orders"}), frozenset({"orders", "customers"})
SHAPES = (
    Composed("a group over a filter", {"clean": "SELECT customer, amount FROM orders WHERE amount > 1"},
             "SELECT customer, count(*) AS n, max(amount) AS most FROM clean GROUP BY customer", ORDERS),
    Composed("a filter over a group", {"revenue": REVENUE}, "SELECT customer, total FROM revenue WHERE n > 1", ORDERS),
    Composed("a group over a group", {"revenue": REVENUE},
             "SELECT n, count(*) AS customers, sum(total) AS total FROM revenue GROUP BY n", ORDERS),
    Composed("a view joined with a table", {"revenue": REVENUE},
             "SELECT c.country, sum(r.total) AS total FROM revenue r JOIN customers c ON r.customer = c.customer "
             "GROUP BY c.country", BOTH),
    Composed("a view joined with its own source", {"revenue": REVENUE},
             "SELECT o.id, o.amount, r.total FROM orders o JOIN revenue r ON o.customer = r.customer", ORDERS),
    Composed("a diamond", {
        "revenue": REVENUE,
        "large": "SELECT customer, total FROM revenue WHERE total > 3",
        "often": "SELECT customer, n FROM revenue WHERE n > 1",
    }, "SELECT l.customer, l.total, f.n FROM large l FULL JOIN often f ON l.customer = f.customer", ORDERS),
    Composed("a view of a table", {"known": "SELECT customer, country FROM customers WHERE tier IS NOT NULL"},
             "SELECT country, count(*) AS n FROM known GROUP BY country", frozenset({"customers"})),
    Composed("a window function over a view", {"revenue": REVENUE},
             "SELECT customer, rank() OVER (ORDER BY total, customer) AS nth FROM revenue", ORDERS),
    Composed("a union of views", {
        "revenue": REVENUE, "tiers": "SELECT tier, count(*) AS n FROM customers GROUP BY tier",
    }, "SELECT customer AS what, n FROM revenue UNION ALL SELECT tier, n FROM tiers", BOTH),
    Composed("over the largest of a view", {
        "largest": "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer ORDER BY total DESC, customer "
                   "LIMIT 2",
    }, "SELECT l.total, c.country FROM largest l JOIN customers c ON l.customer = c.customer", BOTH),
    Composed("over an ordered view", {"ordered": f"{REVENUE} ORDER BY total"},
             "SELECT count(*) AS customers, sum(total) AS total FROM ordered", ORDERS),
    Composed("over the columns of a time window", {
        "hours": "SELECT window(at, '1 hour') AS hour, count(*) AS n FROM orders GROUP BY 1",
    }, "SELECT date_trunc('DAY', hour_start) AS day, max(n) AS most FROM hours GROUP BY 1", ORDERS,
        inlined="WITH hours AS (SELECT window(at, '1 hour').start AS hour_start, count(*) AS n FROM orders GROUP BY 1) "
                "SELECT date_trunc('DAY', hour_start) AS day, max(n) AS most FROM hours GROUP BY 1"),
    Composed("over a query in Python", {
        "revenue": "def revenue(orders):\n    return orders.groupBy('customer').count()\n",
    }, "SELECT c.country, r.count AS n FROM revenue r JOIN customers c USING (customer)", BOTH,
        inlined="WITH revenue AS (SELECT customer, count(*) AS count FROM orders GROUP BY customer) "
                "SELECT c.country, r.count AS n FROM revenue r JOIN customers c USING (customer)"),
    Composed("a query in Python over views", {"revenue": REVENUE},
             "def {name}(customers, revenue):\n    return customers.select('customer', 'country')"
             ".join(revenue, 'customer').select('country', 'total')\n", BOTH,
             inlined=f"WITH revenue AS ({REVENUE}) SELECT c.country, r.total FROM customers c JOIN revenue r "
                     "USING (customer)"),
)  # fmt: skip
#: The way in which some of these views are kept.
_WAYS = {
    ("a group over a filter", "lambda"): "combine",
    ("a group over a filter", "kappa"): "combine",
    ("a filter over a group", "lambda"): "combine",
    ("a group over a group", "kappa"): "touched",
    ("a view joined with a table", "lambda"): "touched",
}
_STEPS = ("micro-batch", "crash after", "restart")
#: Each shape in one architecture, in turns; all of them in both take minutes.
_CASES = [(shape, *(("lambda", "changes") if at % 2 else ("kappa", "table"))) for at, shape in enumerate(SHAPES)]
_CASES.append((SHAPES[0], "lambda", "changes"))
#: Cases that script/test leaves out for their length. The test before has all shapes as a batch.
_ONLY_IN_SOAKS = {
    "a view joined with its own source",
    "a view of a table",
    "a window function over a view",
    "a union of views",
    "over an ordered view",
    "over the columns of a time window",
    "over a query in Python",
}
_IS_SOAK = "HEADRACE_SOAK_QUERIES" in os.environ


@pytest.fixture
def database(sqlite_url):
    made = Database(sqlite_url)
    yield made
    made.close()


def test_the_query_of_a_view_stands_in_place_of_its_name(spark, tmp_path):
    """Every shape at once, as a batch: what takes seconds of the other test is the log."""
    with_rows = 0
    for number, shape in enumerate(SHAPES):
        sources = [
            SourceDefinition(name, "events", (name,), "", Decode("json", schema), dead_letters="dead")
            for name, schema in SCHEMAS.items()
        ]
        definition = composed_definition(tmp_path / str(number), shape, sources, "made", "kappa")
        rows = [
            (None, json.dumps({"customer": each.key, **each.value}).encode(), each.source, 0, at, None, 0)
            for at, each in enumerate(random_records(number, shape.tables, 40))
            if isinstance(each.value, dict)
        ]
        raw = spark.createDataFrame(rows, spark_schema(include_headers=False)).coalesce(1)
        answers = [
            Counter(map(tuple, build(spark, each, raw).collect())) for each in (definition, by_hand(definition, shape))
        ]
        assert answers[0] == answers[1], shape.name
        with_rows += bool(answers[0])
    assert with_rows > len(SHAPES) // 2


@pytest.mark.parametrize(("shape", "architecture", "kind"), _CASES, ids=lambda each: getattr(each, "name", each))
def test_equals_the_batch_answer_at_every_cut(spark, kafka, database, tmp_path, shape, architecture, kind):
    if shape.name in _ONLY_IN_SOAKS and not _IS_SOAK:
        pytest.skip("takes half a minute: script/soak queries runs it")
    view = ComposedView(spark, kafka.bootstrap_servers, database, tmp_path, shape, architecture, kind)
    assert _WAYS.get((shape.name, architecture), view.way) == view.way
    log = random_records(len(shape.name), shape.tables, 26)
    try:
        for at, step in enumerate(_STEPS):
            view.write(log[:5])
            del log[:5]
            view.happens(step)
            view.check()
            assert at < 1 or view.has_begun
        view.write(log)
        view.finishes()
        view.check()
    finally:
        view.close()
