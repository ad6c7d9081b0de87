"""Sources of kind changes: Debezium's envelope, with and without its schema part."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from source_harness import Log, errors_of, rows_of

from headrace.pipeline.project.decode import Decode
from headrace.pipeline.project.source_definition import SourceDefinition

CUSTOMERS = SourceDefinition(
    "customers", "changes", ("customers",), "", Decode("json", "id BIGINT NOT NULL, name STRING", envelope="debezium")
)


def _plain(envelope: dict) -> bytes:
    return json.dumps(envelope).encode()


def _with_schema(envelope: dict) -> bytes:
    schema = {"type": "struct", "name": "shop.customers.Envelope", "fields": [{"field": "op", "type": "string"}]}
    return json.dumps({"schema": schema, "payload": envelope}).encode()


def _change(op: str, id_: int, name: str = "", before: str = "") -> dict:
    after = None if op == "d" else {"id": id_, "name": name, "new column": 1}
    return {"before": before and {"id": id_, "name": before}, "after": after, "op": op, "ts_ms": 1, "source": {}}


@pytest.fixture(params=[_plain, _with_schema])
def encode(request):
    return request.param


@pytest.fixture
def log(spark) -> Log:
    return Log(spark)


def test_the_table_that_the_database_has(log, encode):
    for op, id_, name in [("r", 1, "ann"), ("c", 2, "bob"), ("c", 3, "cid"), ("u", 1, "anna"), ("d", 2, "")]:
        log.add("customers", b'{"id":%d}' % id_, encode(_change(op, id_, name)))
    log.add("customers", b'{"id":2}', None)  # Debezium's tombstone after a delete
    assert rows_of(CUSTOMERS, log) == [(1, "anna"), (3, "cid")]
    # A row whose primary key changes is deleted and created.
    log.add("customers", b'{"id":3}', encode(_change("d", 3, before="cid"))).add("customers", b'{"id":3}', None)
    log.add("customers", b'{"id":4}', encode(_change("c", 4, "cid")))
    assert rows_of(CUSTOMERS, log) == [(1, "anna"), (4, "cid")]
    assert set(errors_of(CUSTOMERS, log)) == {None}


def test_a_truncation_removes_the_rows_before_it_in_its_partition(log, encode):
    log.add("customers", b"1", encode(_change("c", 1, "ann"))).add(
        "customers", b"9", encode(_change("c", 9)), partition=1
    )
    log.add("customers", None, encode({"op": "t", "before": None, "after": None}))
    log.add("customers", b"2", encode(_change("c", 2, "bob")))
    assert rows_of(CUSTOMERS, log) == [(2, "bob"), (9, "")]
    with_key = replace(CUSTOMERS, decode=replace(CUSTOMERS.decode, key=Decode("csv", "k INT")))
    assert rows_of(with_key, log) == [(2, "bob", 2), (9, "", 9)]
    assert set(errors_of(with_key, log)) == {None}


def test_changes_that_are_bad(log, encode):
    log.add("customers", b"1", encode(_change("c", 1, "ann"))).add("customers", b"1", encode({"op": "u"}))
    log.add("customers", b"1", encode(_change("u", "x"))).add("customers", b"1", encode({"op": "m"}))
    log.add("customers", b"1", encode({"id": 1, "name": "x"})).add("customers", b"1", b"{bad")
    log.add("customers", b"1", encode({"op": "t"})).add("customers", None, encode(_change("d", 1)))
    log.add("customers", b"1", encode({"op": "u", "after": {"name": "x"}}))
    path = "" if encode is _plain else "payload."
    assert errors_of(CUSTOMERS, log) == [
        None,
        "a change with op u has no after",
        f"{path}after.id: the value does not fit BIGINT",
        "there is no op m",
        "the value is not a change in Debezium's envelope: it has no op",
        "the value is not a JSON object",
        "a change with op t has a key",
        "the record has no key, and the key identifies the row of a table",
        f"{path}after.id: missing, but the schema says NOT NULL",
    ]
    assert rows_of(CUSTOMERS, log) == [(1, "ann")]


def test_avro_envelopes(log):
    from io import BytesIO

    import fastavro

    row = {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]}  # fmt: skip
    schema = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"}, {"name": "ts_ms", "type": ["null", "long"]}]}  # fmt: skip

    def encoded(op: str, after: dict | None) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, schema, {"before": None, "after": after, "op": op, "ts_ms": 1})
        return out.getvalue()

    source = replace(CUSTOMERS, decode=Decode("avro", json.dumps(schema), envelope="debezium"))
    log.add("customers", b"1", encoded("c", {"id": 1, "name": "ann"})).add("customers", b"2", encoded("d", None))
    log.add("customers", b"3", encoded("u", {"id": 3, "name": None})).add("customers", b"1", encoded("u", None))
    assert rows_of(source, log) == [(1, "ann"), (3, None)]
    assert errors_of(source, log) == [None, None, None, "a change with op u has no after"]
