"""The rows of sources: events, tables, the columns of keys, and queries over several sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from source_harness import Log, errors_of, rows_of

from headrace.pipeline.decoding.events import ERROR, UnsuitableDecode, columns_of, decode_frame
from headrace.pipeline.maintenance.checks import check_view
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.validation import missing_topics
from headrace.pipeline.query.view_query import ViewError, build

CUSTOMERS = SourceDefinition(
    "customers", "table", ("customers",), "", Decode("json", "name STRING", key=Decode("csv", "id BIGINT"))
)
ORDERS = SourceDefinition("orders", "events", ("orders",), "", Decode("json", "id BIGINT, customer BIGINT"))


@pytest.fixture
def log(spark) -> Log:
    return Log(spark)


def test_the_newest_record_of_a_key_is_the_row(log):
    log.add("customers", b"1", b'{"name":"ann"}').add("customers", b"2", b'{"name":"bob"}')
    log.add("customers", b"1", b'{"name":"anna"}').add("customers", b"3", b'{"name":"cid"}')
    log.add("customers", b"3", None)
    assert rows_of(CUSTOMERS, log) == [("anna", 1), ("bob", 2)]
    log.add("customers", b"3", b'{"name":"cid again"}', seconds=0)  # the offset counts, not the time
    assert rows_of(CUSTOMERS, log) == [("anna", 1), ("bob", 2), ("cid again", 3)]


def test_a_bad_record_does_not_replace_a_row(log):
    log.add("customers", b"1", b'{"name":"ann"}').add("customers", b"1", b"{bad").add("customers", None, b"{}")
    log.add("customers", b"x", b'{"name":"bob"}').add("customers", b"y", None)
    assert rows_of(CUSTOMERS, log) == [("ann", 1)]
    assert errors_of(CUSTOMERS, log) == [
        None,
        "the value is not a JSON object",
        "the record has no key, and the key identifies the row of a table",
        "id: the key does not fit BIGINT",
        None,  # removes the row of a key, whatever the key is
    ]


def test_a_key_in_several_partitions(log):
    log.add("customers", b"1", b'{"name":"newer"}', partition=1, seconds=9)
    log.add("customers", b"1", b'{"name":"older"}', partition=0, seconds=5)
    assert rows_of(CUSTOMERS, log) == [("newer", 1)]
    log.add("customers", b"1", b'{"name":"same time"}', partition=2, seconds=9)
    assert rows_of(CUSTOMERS, log) == [("same time", 1)]
    log.add("customers", b"1", None, partition=2, seconds=9)
    assert rows_of(CUSTOMERS, log) == []


def test_the_key_of_events_gives_columns(log):
    decode = Decode("json", "name STRING", key=Decode("json", "id BIGINT NOT NULL, part STRUCT<a: INT>"))
    log.add("t", b'{"id":1,"part":{"a":2}}', b'{"name":"ann"}').add("t", None, b"{}").add("t", b"{}", b"{}")
    log.add("t", b"\xff", b"{}").add("t", b"{", b"{bad")
    rows = decode_frame(decode, log.frame()).orderBy("_offset").collect()
    assert [(rows[0].name, rows[0].id, rows[0].part.a)] == [("ann", 1, 2)]
    assert [row[ERROR] for row in rows] == [
        None,
        "the record has no key",
        "id: missing, but the schema says NOT NULL",
        "the key is not UTF-8",
        "the value is not a JSON object",
    ]
    row_wise = decode_frame(decode, log.frame(), is_optimized=False).orderBy("_offset").collect()
    assert row_wise == rows


@pytest.mark.parametrize("value", [Decode("raw"), Decode("csv", "name STRING")])
def test_a_key_by_python_beside_any_value(log, value):
    function = FileText("keys.py", "def read(key):\n    return {'id': int(key)}\n", "read")
    decode = replace(value, key=Decode("python", "id INT", function=function))
    log.add("t", b"7", b"ann").add("t", b"x", b"bob")
    rows = decode_frame(decode, log.frame()).orderBy("_offset").collect()
    assert (rows[0].id, rows[0][ERROR]) == (7, None)
    assert rows[1][ERROR] == "ValueError: invalid literal for int() with base 10: b'x'"


def test_a_column_of_both_key_and_value(spark):
    with pytest.raises(UnsuitableDecode, match=r"decode\.key\.schema: the value has a column ID too"):
        columns_of(Decode("json", "id BIGINT", key=Decode("json", "ID BIGINT")))
    with pytest.raises(UnsuitableDecode, match=r"decode\.key\.schema cannot be read: there is no type BIGIN"):
        columns_of(Decode("json", "id BIGINT", key=Decode("json", "k BIGIN")))


# ------------------------------------------------------------------------------------------ queries over sources


def _view(query: str, *sources: SourceDefinition, function: str = "", **changes) -> ViewDefinition:
    file = "views/v.py" if function else "views/v.sql"
    made = ViewDefinition("v", (), "", "kappa", FileText(file, query, function), Decode(), sources=sources)
    return replace(made, file=Path("views/v.toml"), **changes)


def _answer(spark, view: ViewDefinition, log: Log) -> list[tuple]:
    return sorted((tuple(row) for row in build(spark, view, log.frame()).collect()), key=str)


def test_a_join_of_events_and_a_table(spark, log):
    log.add("customers", b"1", b'{"name":"ann"}').add("orders", None, b'{"id":1,"customer":1}')
    log.add("orders", None, b'{"id":2,"customer":2}').add("orders", None, b'{"id":3,"customer":1}')
    log.add("customers", b"1", b'{"name":"anna"}')
    sql = "SELECT c.name, count(*) AS n FROM orders o LEFT JOIN Customers c ON o.customer = c.id GROUP BY ALL"
    by_sql = _view(sql, ORDERS, CUSTOMERS)
    assert _answer(spark, replace(by_sql, query=FileText("v.sql", sql.replace("LEFT ", ""))), log) == [("anna", 2)]
    assert len(_answer(spark, by_sql, log)) == 2
    python = """
def v(customers, orders):
    return orders.join(customers, orders.customer == customers.id).groupBy("name").count()
"""
    assert _answer(spark, _view(python, CUSTOMERS, ORDERS, function="v"), log) == [("anna", 2)]
    assert not spark.catalog.tableExists("orders")


def test_the_views_own_topics_beside_a_source(spark, log):
    own = SourceDefinition(
        "events", "events", ("a", "b"), "", Decode("json", "customer BIGINT"), file=Path("views/v.toml")
    )
    log.add("a", None, b'{"customer":1}').add("b", None, b'{"customer":2}').add("b", None, b'{"customer":1}')
    log.add("customers", b"1", b'{"name":"ann"}').add("customers", b"2", b'{"name":"bob"}')
    sql = "SELECT name, count(*) AS n FROM events JOIN customers ON customer = id GROUP BY name"
    assert _answer(spark, _view(sql, own, CUSTOMERS), log) == [("ann", 2), ("bob", 1)]
    assert _answer(spark, _view(sql.replace("events", "b"), own, CUSTOMERS), log) == [("ann", 1), ("bob", 1)]


def test_a_view_of_one_source_reads_it_by_its_name(spark, log):
    log.add("a", None, b'{"id":1}').add("b", None, b'{"id":2}')
    sql = FileText("views/v.sql", "SELECT id FROM A")  # the source, although a topic has the same name
    view = ViewDefinition("v", ("a", "b"), "", "kappa", sql, Decode("json", "id INT"), source_name="a")
    assert _answer(spark, view, log) == [(1,), (2,)]


def test_problems_of_sources_are_in_their_files(spark):
    customers = replace(CUSTOMERS, file=Path("sources/customers.toml"), lines={("topics",): 2, ("decode", "schema"): 5})
    sql = "SELECT name, count(*) AS n FROM customers GROUP BY name"
    (problem,) = missing_topics(_view(sql, customers), ["customer"])
    assert str(problem) == "sources/customers.toml:2: there is no topic 'customers': did you mean customer?"
    bad = replace(customers, decode=Decode("json", "name STRIN"))
    (problem,) = check_view(spark, _view(sql, bad)).problems
    assert str(problem) == (
        "sources/customers.toml:5: decode.schema cannot be read: there is no type STRIN: did you mean STRING?"
    )
    (problem,) = check_view(spark, _view(sql.replace("name", "nam", 1), customers)).problems
    assert str(problem) == "views/v.sql:1:8: there is no column nam: did you mean name?"
    with pytest.raises(ViewError, match="there is no table orders: known names are customers"):
        build(spark, _view(sql.replace("FROM customers", "FROM orders"), customers), Log(spark).frame())


def test_a_view_over_a_table_is_maintained_by_touched_keys(spark):
    chosen = check_view(spark, _view("SELECT name FROM customers", CUSTOMERS)).maintenance
    assert chosen is not None
    assert chosen.way == "touched"
    assert chosen.refused[0].why == "it reads the table customers, whose rows change"
