"""Queries are cut into operators: their keys, their kept rows, and the refused queries."""

from __future__ import annotations

import pytest
from lambda_harness import quick as quick
from query_shapes import RECORD, SCHEMAS

from headrace.pipeline.query.plan import SortBy
from headrace.pipeline.touched.cutting import cut
from headrace.pipeline.touched.operators import Keyed
from headrace.pipeline.touched.placeholders import placeholders
from headrace.pipeline.touched.top import NotTouchable


@pytest.fixture(scope="module")
def sources(spark):
    made = placeholders(
        spark, {name: spark.createDataFrame([], f"{ddl}, {RECORD}").schema for name, ddl in SCHEMAS.items()}
    )
    for name, frame in made.frames.items():
        frame.createOrReplaceTempView(name)
    return made


@pytest.fixture
def tree(spark, sources):
    return lambda query: cut(spark.sql(query) if isinstance(query, str) else query, sources.sources)


@pytest.mark.parametrize(
    ("query", "operators"),
    [
        ("SELECT id FROM orders WHERE amount > 1", ()),
        ("SELECT item, count(DISTINCT id) AS n FROM orders GROUP BY item", ("Aggregate by item",)),
        ("SELECT count(*) AS n FROM orders", ("Aggregate",)),
        ("SELECT o.id, k.country FROM orders o JOIN countries k ON o.price > k.vat", ("Inner",)),
        (
            "SELECT session_window(at, '1 hour') AS w, item, count(*) AS n FROM orders "
            "GROUP BY session_window(at, '1 hour'), item",
            ("Aggregate by item",),
        ),
        (
            "SELECT c.country, sum(o.amount) AS t FROM orders o, customers c "
            "WHERE o.customer_id = c.customer_id GROUP BY c.country",
            ("Inner by customer_id", "Aggregate by country"),
        ),
        (
            "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)",
            ("LeftAnti by id",),
        ),
        ("SELECT id, rank() OVER (PARTITION BY item ORDER BY at) AS r FROM orders", ("Window by item",)),
    ],
)
def test_the_operators_and_their_keys(tree, query, operators):
    assert tuple(map(_text, tree(query).keyed)) == operators


def _text(operator: Keyed) -> str:
    first = operator.inputs[0]
    keys = ", ".join(text.split(".")[-1] for text in first.key_texts or (str(each.name()) for each in first.keys))
    return f"{operator.join_type or operator.how} by {keys}" if operator.has_key else operator.join_type or operator.how


def test_only_needed_columns_are_kept(tree):
    (state,) = tree("SELECT item, count(DISTINCT id) AS n FROM orders GROUP BY item").inputs
    assert sorted(str(each.name()) for each in state.columns) == ["id", "item"]


@pytest.mark.parametrize(
    ("functions", "sums"),
    [
        ("count(*) AS n", 2),
        ("count(amount) AS n, sum(amount) AS s, avg(amount) + 1 AS a, sum(cost) FILTER (WHERE amount > 3) AS f", 8),
        ("sum(price) AS s", None),
        ("count(*) AS n, max(amount) AS m", None),
        ("count(DISTINCT id) AS n", None),
        ("try_sum(amount) AS s", None),
        ("avg(cost) AS a", None),
    ],
)
def test_aggregates_of_sums_keep_one_row_per_group(tree, functions, sums):
    (state,) = tree(f"SELECT upper(item) AS item, {functions} FROM orders GROUP BY upper(item)").inputs
    assert (state.groups is None) == (sums is None)
    if sums is not None:
        assert len(state.columns) == 1 + sums


def test_groups_of_doubles_keep_their_rows(tree):
    (state,) = tree("SELECT price, count(*) AS n FROM orders GROUP BY price").inputs
    assert state.groups is None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM orders ORDER BY amount DESC, id LIMIT 3",
        "SELECT id FROM (SELECT id, amount FROM orders) ORDER BY amount DESC, id LIMIT 3",
    ],
)
def test_order_and_limit_at_the_top_are_for_the_sql_view(tree, query):
    found = tree(query)
    assert found.keyed == []
    assert found.shown.output == ("id",)
    assert found.shown.limit == 3
    assert found.shown.order == (SortBy("_order_0", True, False), SortBy("id", False, True))


def test_nan_is_sorted_as_the_largest_number(tree):
    """SQLite stores it as NULL."""
    found = tree("SELECT id, price FROM orders ORDER BY price DESC LIMIT 3")
    assert found.keyed == []
    assert found.shown.order == (SortBy("_order_0", True, False), SortBy("price", True, False))


@pytest.mark.parametrize("column", ["tags", "note", "item COLLATE UTF8_LCASE"])
def test_what_a_database_sorts_in_another_way_is_limited_by_spark(tree, column):
    found = tree(f"SELECT id FROM orders ORDER BY {column}, id LIMIT 3")
    assert [each.how for each in found.keyed] == ["Limit"]
    assert (found.shown.order, found.shown.limit) == ((), None)


def test_texts_that_a_collation_takes_for_equal_are_no_key(tree):
    """Their hashes differ, so that one would not be computed again with the other."""
    for query in (
        "SELECT item COLLATE UTF8_LCASE AS i, count(DISTINCT id) AS n FROM orders GROUP BY 1",
        "SELECT id, row_number() OVER (PARTITION BY item COLLATE UTF8_LCASE ORDER BY id) AS r FROM orders",
        "SELECT o.id FROM orders o JOIN customers c ON o.item COLLATE UTF8_LCASE = c.name",
    ):
        with pytest.raises(NotTouchable, match="collate UTF8_LCASE"):
            tree(query)


def test_the_state_of_collect_list_has_positions(tree):
    (state,) = tree("SELECT item, collect_list(id) AS ids FROM orders GROUP BY item").inputs
    assert {"_timestamp", "_topic", "_partition", "_offset"} <= {str(each.name()) for each in state.columns}


def test_what_cannot_be_cut_is_refused_with_the_reason(tree, sources):
    with pytest.raises(NotTouchable, match="mapInPandas sees whole partitions"):
        tree(sources.frames["orders"].mapInPandas(lambda frames: frames, sources.frames["orders"].schema))
    with pytest.raises(NotTouchable, match="sample"):
        tree(sources.frames["orders"].select("id").sample(0.5, seed=1))
