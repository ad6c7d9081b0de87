"""JSON records whose ids are looked up in a schema registry, in the driver and in Spark jobs."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from source_harness import Log, errors_of, rows_of

from headrace.pipeline.decoding.json_schema_ids import DriverCheck, problem_column
from headrace.pipeline.decoding.registry import RegistryUnavailable
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.row_partials import RowPartials
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.touched.source_decoder import SourceDecoder
from registry_harness import FakeRegistry, fake_registry

REASONS = [
    None,
    "the registry has no schema with the id 99",
    "the schema with the id 2 is of type AVRO, not JSON",
    None,
    "the value does not begin with Confluent's five bytes",
    "price: the value does not fit DOUBLE",
    "the record has no value",
]


@pytest.fixture
def registry():
    with fake_registry() as made:
        made.register({"type": "object"}, kind="JSON")
        made.register({"type": "record", "name": "r", "fields": []})
        yield made


def _framed(schema_id: int, text: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + text


VALUES = [
    _framed(1, b'{"id":1,"price":1.5}'), _framed(99, b'{"id":2}'), _framed(2, b'{"id":3}'), _framed(1, b'{"id":4}'),
    b'{"id":5}', _framed(1, b'{"id":6,"price":"x"}'), None,
]  # fmt: skip


def _decode(registry: FakeRegistry) -> Decode:
    return Decode("json", "id BIGINT, price DOUBLE", framing="confluent", registry=registry.url)


def _log(spark) -> Log:
    log = Log(spark)
    for value in VALUES:
        log.add("t", None, value)
    return log


def test_each_id_is_asked_for_once(registry):
    check = DriverCheck(_decode(registry))
    records = pa.table({"value": pa.chunked_array([pa.array(VALUES, pa.binary()), pa.array(VALUES * 50, pa.binary())])})
    for _ in range(2):
        made = check.add_problems(records)[problem_column("value")].to_pylist()
        assert made[: len(VALUES)] == [None, REASONS[1], REASONS[2], None, None, None, None]
        assert made[-len(VALUES) :] == made[: len(VALUES)]
    assert sorted(registry.asked) == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/99"]


def test_a_registry_that_does_not_answer_makes_no_record_bad(registry):
    registry.broken = 503
    records = pa.table({"value": pa.array(VALUES, pa.binary())})
    with pytest.raises(RegistryUnavailable):
        DriverCheck(_decode(registry)).add_problems(records)


def test_other_sources_are_left_alone(registry):
    records = pa.table({"value": pa.array(VALUES, pa.binary())})
    for decode in (Decode("json", "id BIGINT", framing="confluent"), replace(_decode(registry), format="avro")):
        assert DriverCheck(decode).add_problems(records) is records


def test_a_job_and_the_driver_give_the_same(spark, registry):
    source, log = SourceDefinition("t", "events", ("t",), "", _decode(registry)), _log(spark)
    assert errors_of(source, log) == REASONS
    records = log.frame().toArrow()
    decoder = SourceDecoder(spark, source, ["id", "price"])
    assert decoder._in_driver is not None, "it needs no Spark job"
    decoded = decoder.decode(records)
    assert decoded.rows.to_pylist() == [{"id": 1, "price": 1.5}, {"id": 4, "price": None}]
    assert decoded.bad["reason"].to_pylist() == [reason for reason in REASONS if reason is not None]
    query = FileText("v.sql", "SELECT id, sum(price) AS price FROM events GROUP BY id")
    view = ViewDefinition("v", ("t",), "", "lambda", query, source.decode)
    in_driver = RowPartials.prepare(spark, view, Algebra(analyze(apply_query(spark, view, empty_events(spark, view)))))
    assert in_driver is not None
    made = in_driver.compute(records)
    assert made.bad.to_pylist() == REASONS
    assert sorted(made.rows.column("_k0").to_pylist()) == [1, 4]


def test_keys_and_whole_documents(spark, registry):
    decode = Decode("json", "v VARIANT", framing="confluent", registry=registry.url)
    log = Log(spark).add("t", None, _framed(1, b"[1]")).add("t", None, _framed(2, b"[1]"))
    assert errors_of(SourceDefinition("t", "events", ("t",), "", decode), log) == [None, REASONS[2]]
    by_key = Decode("json", "name STRING", key=replace(_decode(registry), schema="id BIGINT"))
    source = SourceDefinition("t", "events", ("t",), "", by_key)
    log = Log(spark).add("t", _framed(1, b'{"id":7}'), b'{"name":"ann"}').add("t", _framed(99, b"{}"), b"{}")
    assert errors_of(source, log) == [None, REASONS[1]]
    assert rows_of(source, log) == [("ann", 7)]
