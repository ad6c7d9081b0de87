"""VARIANT columns, values with the id of a schema, and Protobuf, decoded by Spark."""

from __future__ import annotations

import json

import pytest
from source_harness import Log, errors_of
from test_protobuf_columns import DECODE, order_class

from headrace.pipeline.decoding.events import decode_frame, event_schema, good_rows
from headrace.pipeline.maintenance.checks import check_view
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.row_partials import RowPartials
from headrace.pipeline.query.view_query import apply_query, build, empty_events


def _log(spark, *values: bytes | None) -> Log:
    log = Log(spark)
    for value in values:
        log.add("t", None, value)
    return log


def _source(decode: Decode) -> SourceDefinition:
    return SourceDefinition("t", "events", ("t",), "", decode)


BY_KIND = "SELECT variant_get(v, '$.kind', 'string') AS kind, count(*) AS n FROM events GROUP BY 1"


@pytest.mark.parametrize("architecture", ["lambda", "kappa"])
def test_json_without_a_schema(spark, architecture):
    log = _log(spark, b'{"kind":"a","x":[1]}', b'{"kind":"b"}', b'{"kind":"a","y":{"z":1}}')
    view = ViewDefinition("v", ("t",), "", architecture, FileText("v.sql", BY_KIND), Decode("json", "v VARIANT"))
    assert check_view(spark, view).problems == []
    assert sorted(tuple(row) for row in build(spark, view, log.frame()).collect()) == [("a", 2), ("b", 1)]
    if architecture == "lambda":
        algebra = Algebra(analyze(apply_query(spark, view, empty_events(spark, view))))
        in_driver = RowPartials.prepare(spark, view, algebra)
        assert in_driver is not None
        assert sorted(in_driver.compute(log.frame().toArrow()).rows.column("_k0").to_pylist()) == ["a", "b"]


def test_documents_that_are_not_json(spark):
    values = [b'{"a":1}', b"[1,2]", b"7", b"{bad", b'{"a":1}{"a":2}', b"1]", b"1,2", b"", b"\xff", None]
    assert errors_of(_source(Decode("json", "v VARIANT")), _log(spark, *values)) == [
        None,
        None,
        None,
        *["the value is not JSON"] * 5,
        "the value is not UTF-8",
        "the record has no value",
    ]


def test_a_variant_beside_other_columns_is_a_field(spark):
    decode = Decode("json", "id BIGINT, rest VARIANT")
    log = _log(spark, b'{"id":1,"rest":{"a":[1,{"b":2}]}}', b'{"id":2}', b'{"id":"x","rest":1}')
    rows = good_rows(decode_frame(decode, log.frame())).selectExpr("id", "variant_get(rest, '$.a[1].b', 'int') AS b")
    assert sorted(tuple(row) for row in rows.collect()) == [(1, 2), (2, None)]
    assert errors_of(_source(decode), log)[2] == "id: the value does not fit BIGINT"


def test_nested_fields_arrays_and_maps(spark):
    decode = Decode("json", "a STRUCT<b: ARRAY<STRUCT<c: INT>>>, m MAP<STRING, DOUBLE>")
    log = _log(spark, b'{"a":{"b":[{"c":1},{"c":2}]},"m":{"x":1.5}}')
    rows = good_rows(decode_frame(decode, log.frame())).selectExpr("explode(a.b.c) AS c", "m['x'] AS x")
    assert [tuple(row) for row in rows.collect()] == [(1, 1.5), (2, 1.5)]


def test_json_with_the_id_of_its_schema(spark):
    values = [b'\0\0\0\0\x07{"id":1}', b'{"id":2}', b"\0\0\0", b"\0\0\0\0\x07{bad", b"\0\0\0\0\x07"]
    for schema, bad in (("id INT", "the value is not a JSON object"), ("v VARIANT", "the value is not JSON")):
        found = errors_of(_source(Decode("json", schema, framing="confluent")), _log(spark, *values))
        framing = "the value does not begin with Confluent's five bytes"
        assert found[:4] == [None, framing, framing, bad]
        assert found[4] is not None


def test_protobuf_in_spark(spark):
    values = [order_class()(id=number, kind=1).SerializeToString() for number in (7, 8)]
    log = _log(spark, *values, b"\xff")
    rows = good_rows(decode_frame(DECODE, log.frame()))
    assert rows.columns == event_schema(DECODE).names
    assert sorted(tuple(row) for row in rows.select("id", "kind", "note").collect()) == [
        (7, "GIFT", None),
        (8, "GIFT", None),
    ]
    assert errors_of(_source(DECODE), log)[2].startswith("ValueError: the value is not a shop.Order")


def test_definitions_with_a_registry_survive_json():
    decode = Decode("avro", "{}", key=Decode("json", "id INT"), registry="http://r", registry_options={"a": "b"})
    view = ViewDefinition("v", ("t",), "", "kappa", FileText("v.sql", BY_KIND), decode)
    assert ViewDefinition.from_dict(json.loads(json.dumps(view.as_dict()))) == view
