"""Joins that can explode are told of, with estimates from the topics' own statistics."""

from __future__ import annotations

import json
import math
import random
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Admin, Producer
from headrace.client.admin.types import NewTopic
from headrace.client.types import TopicPartition
from headrace.pipeline.maintenance.joins import join_warnings
from headrace.pipeline.maintenance.samples import estimated_distinct, ranges_of_sample, sample_of
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition

ORDERS = SourceDefinition(
    "orders", "events", ("orders",), "", Decode(schema="id BIGINT, customer BIGINT, amount BIGINT")
)
PAYMENTS = SourceDefinition("payments", "events", ("payments",), "", Decode(schema="order_id BIGINT, customer BIGINT"))
CUSTOMERS = SourceDefinition("customers", "table", ("customers",), "", Decode(schema="customer BIGINT, country STRING"))
RECORDS = 20_000


@pytest.fixture(scope="module")
def log(kafka) -> dict[str, str]:
    """20,000 orders and payments of 100 customers, and a customer's row in two records each."""
    draw = random.Random(3)
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 2) for topic in ("orders", "payments", "customers")]).all()
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(RECORDS):
            order = {"id": number, "customer": draw.randrange(100), "amount": 1}
            producer.send("orders", json.dumps(order).encode())
            producer.send("payments", json.dumps({"order_id": number, "customer": draw.randrange(100)}).encode())
        for number in range(200):
            customer = {"customer": number % 100, "country": "abc"[number % 3]}
            producer.send("customers", json.dumps(customer).encode(), key=str(number % 100).encode())
        producer.flush()
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers}


def view(query: str, *sources: SourceDefinition) -> ViewDefinition:
    return ViewDefinition("joined", (), "", "lambda", FileText("views/joined.sql", query), Decode(), sources=sources)


def warnings(spark, log, query, *sources):
    return join_warnings(spark, view(query, *sources), log)


def test_keys_that_repeat_on_both_sides(spark, log):
    query = "SELECT o.id, p.order_id FROM orders o JOIN payments p ON o.customer = p.customer"
    (found,) = warnings(spark, log, query, ORDERS, PAYMENTS)
    assert "the keys of the join of orders with payments (o.customer = p.customer) repeat on both sides" in found.text
    assert found.rows is not None
    assert RECORDS * 200 * 0.8 < found.rows < RECORDS * 200 * 1.2
    assert f"up to about {found.rows:,} rows now" in found.text


def test_further_conditions_are_mentioned(spark, log):
    query = "SELECT o.id FROM orders o JOIN orders p ON o.customer = p.customer AND o.id < p.id"
    (found,) = warnings(spark, log, query, ORDERS, PAYMENTS)
    assert "the join of orders with itself" in found.text
    assert "fewer if its other conditions remove pairs" in found.text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.id, p.order_id FROM orders o JOIN payments p ON o.id = p.order_id",
        "SELECT o.id, c.country FROM orders o JOIN customers c ON o.customer = c.customer",
        "SELECT o.id FROM orders o LEFT SEMI JOIN payments p ON o.customer = p.customer",
        "SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE o.customer = p.customer)",
        "SELECT o.id, s.n FROM orders o JOIN (SELECT customer, count(*) AS n FROM payments GROUP BY customer) s "
        "ON o.customer = s.customer",
        "SELECT o.id, s.n FROM orders o CROSS JOIN (SELECT count(*) AS n FROM payments) s",
        "SELECT customer, count(*) AS n FROM orders GROUP BY customer",
        "SELECT id FROM orders UNION ALL SELECT order_id FROM payments",
    ],
)
def test_joins_that_do_not_explode(spark, log, query):
    assert warnings(spark, log, query, ORDERS, PAYMENTS, CUSTOMERS) == []


def test_a_join_without_an_equality(spark, log):
    query = "SELECT o.id, c.country FROM orders o JOIN customers c ON o.amount > c.customer"
    (found,) = warnings(spark, log, query, ORDERS, CUSTOMERS)
    assert "the join of orders with customers has no equality: every row of one side" in found.text
    assert found.rows is not None
    assert RECORDS * 100 * 0.8 < found.rows < RECORDS * 100 * 1.2


def test_a_log_that_is_away_leaves_the_estimate_out(spark):
    query = "SELECT o.id, p.order_id FROM orders o CROSS JOIN payments p"
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "300"}
    (found,) = warnings(spark, nowhere, query, ORDERS, PAYMENTS)
    assert found.rows is None
    assert "has no equality" in found.text


def test_a_sample_is_bounded_and_counts_all(log):
    sample = sample_of(ORDERS, log)
    assert sample.total == RECORDS
    assert 3_000 <= len(sample.records) <= 4_100
    assert len({record[3:5] for record in sample.records}) == len(sample.records)


def test_no_run_waits_for_new_records_at_the_end_of_the_log(log):
    sample_of(ORDERS, log)  # which compiles kernels
    start_s = time.monotonic()
    sample_of(ORDERS, log)
    # Fewer than four waits of fetch.max.wait.ms. One sample has eight runs in each partition.
    assert time.monotonic() - start_s < 2.0


SPANS = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 5)),
    st.tuples(st.integers(0, 10_000), st.integers(1, 100_000)).map(lambda span: (span[0], span[0] + span[1])),
    min_size=1,
)


@given(spans=SPANS)
def test_the_runs_of_a_sample_are_apart_inside_and_bounded(spans):
    ranges = ranges_of_sample(spans)
    assert {each.topic_partition for each in ranges} == set(spans)
    total = sum(end - start for start, end in spans.values())
    assert sum(each.size for each in ranges) <= 4_000 + 8 * len(spans) or total <= 4_000
    for partition, (start, end) in spans.items():
        places = sorted((each.start, each.end) for each in ranges if each.topic_partition == partition)
        assert places[0][0] >= start
        assert places[-1][1] <= end
        assert all(one[1] <= other[0] for one, other in pairwise(places))


@pytest.mark.parametrize("distinct", [1, 10, 100, 1_000, 10_000, 100_000])
def test_distinct_values_are_estimated_from_a_sample(distinct):
    draw = random.Random(distinct)
    sample = [draw.randrange(distinct) for _ in range(4_000)]
    found = estimated_distinct(len(sample), len(set(sample)), 1_000_000)
    assert math.isclose(found, distinct, rel_tol=0.35)


def test_values_that_all_differ_are_as_many_as_the_rows():
    assert estimated_distinct(4_000, 4_000, 1_000_000) == 1_000_000
    assert estimated_distinct(0, 0, 50) == 50
    assert estimated_distinct(200, 100, 200) == 100
