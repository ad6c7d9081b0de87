"""Schemas from a registry, and Avro records that were written with other schemas than they are read with."""

from __future__ import annotations

import base64
import io
import json

import fastavro
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.pipeline.decoding import registry as registry_module
from headrace.pipeline.decoding.avro_columns import avro_reader
from headrace.pipeline.decoding.events import guarded, reading_function
from headrace.pipeline.decoding.registry import RegistryUnavailable, SchemaRegistry, UnknownSchema, schema_id_of
from headrace.pipeline.project.decode import Decode
from headrace.pipeline.version.failures import FailureKind, classify_failure
from registry_harness import fake_registry


def _record(**types: object) -> dict:
    return {"type": "record", "name": "Order", "fields": [{"name": n, "type": t} for n, t in types.items()]}


OLD, NEW = _record(id="int", note="string"), _record(id="long", price=["null", "double"])


def _written(schema: dict, row: dict, schema_id: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


@pytest.fixture
def registry():
    with fake_registry() as made:
        yield made


def _reader(registry, schema: dict = NEW):
    return avro_reader(Decode("avro", json.dumps(schema), framing="confluent", registry=registry.url))


def test_records_of_several_versions_are_read_with_one_schema(registry):
    old, new = registry.register(OLD), registry.register(NEW)
    read = _reader(registry)
    assert read(_written(OLD, {"id": 1, "note": "x"}, old)) == {"id": 1, "price": None}  # new, so NULL before
    assert read(_written(NEW, {"id": 2, "price": 1.5}, new)) == {"id": 2, "price": 1.5}
    assert read(_written(OLD, {"id": 3, "note": "y"}, old)) == {"id": 3, "price": None}
    assert registry.asked == [f"/schemas/ids/{old}", f"/schemas/ids/{new}"]  # each once


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (_record(id="string"), "mismatch"),  # the type changed
        (_record(id="long", total="double"), "default"),  # removed, and not optional
    ],
)
def test_a_record_that_the_schema_cannot_read(registry, reader, reason):
    number = registry.register(OLD)
    with pytest.raises(Exception, match=rf"(?i){reason}"):
        _reader(registry, reader)(_written(OLD, {"id": 1, "note": "x"}, number))


def test_schemas_with_references(registry):
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    registry.register(money, "money")
    order = _record(id="int", price="shop.Money")
    number = registry.register(order, references=[{"name": "shop.Money", "subject": "money", "version": 1}])
    reader = _record(id="int", price=money)
    written = _written(reader, {"id": 1, "price": {"cents": 5}}, number)
    assert _reader(registry, reader)(written) == {"id": 1, "price": {"cents": 5}}


def test_values_that_no_registry_knows(registry):
    read = _reader(registry)
    with pytest.raises(UnknownSchema, match="the registry has no schema with the id 77"):
        read(b"\0\0\0\0\x4d\0")
    with pytest.raises(ValueError, match="does not begin with Confluent's five bytes"):
        read(b"{}")
    number = registry.register("syntax = 'proto3'", kind="PROTOBUF")
    with pytest.raises(ValueError, match="is of type PROTOBUF, not AVRO"):
        read(b"\0" + number.to_bytes(4, "big"))
    assert schema_id_of(b"\0\0\0\x01\x02rest") == 258


def test_an_unknown_id_is_asked_for_once_in_a_while(registry, monkeypatch):
    client = SchemaRegistry(registry.url)
    for _ in range(3):
        with pytest.raises(UnknownSchema):
            client.schema(1)
    assert len(registry.asked) == 1
    monkeypatch.setattr(registry_module, "_ASK_AGAIN_AFTER_S", 0)
    registry.register(OLD)
    assert json.loads(client.schema(1).text) == OLD


def test_only_so_many_schemas_are_kept(registry, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_SCHEMAS", 2)
    client = SchemaRegistry(registry.url)
    for number in [registry.register(OLD) for _ in range(3)]:
        client.schema(number)
    assert len(client._schemas) == 2
    for number in range(10, 15):
        with pytest.raises(UnknownSchema):
            client.schema(number)
    assert len(client._unknown) == 2


def test_a_registry_that_does_not_answer_makes_no_record_bad(registry):
    columns = StructType([StructField("id", LongType())])
    run = guarded(reading_function(Decode("avro", json.dumps(NEW), registry=registry.url)), columns)
    value = _written(OLD, {"id": 1, "note": "x"}, registry.register(OLD))
    registry.broken = 500
    with pytest.raises(RegistryUnavailable, match="answers 500") as caught:
        run(None, value)
    assert classify_failure(caught.value) is FailureKind.TRANSIENT
    in_spark = RuntimeError("Traceback\nheadrace.pipeline.decoding.registry.RegistryUnavailable: the registry at x")
    assert classify_failure(in_spark) is FailureKind.TRANSIENT
    registry.broken = None
    assert run(None, value) == (1, None)


def test_nobody_is_there():
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        SchemaRegistry("http://127.0.0.1:1").schema(1)


def test_the_login(registry, monkeypatch, tmp_path):
    number = registry.register(OLD, "orders-value")
    registry.login = "Basic " + base64.b64encode(b"ann:secret").decode()
    with pytest.raises(RegistryUnavailable, match="answers 401"):
        SchemaRegistry(registry.url).schema(number)
    monkeypatch.setenv("REGISTRY_LOGIN", "ann:secret")
    by_environment = SchemaRegistry(registry.url, {"basic.auth.user.info": "${env:REGISTRY_LOGIN}"})
    assert by_environment.schema(number).kind == "AVRO"
    (tmp_path / "login").write_text("ann:secret\n")
    by_file = SchemaRegistry(registry.url, {"basic.auth.user.info": f"${{file:{tmp_path}/login}}"})
    assert by_file.latest("orders-value") == by_environment.schema(number)
    assert by_file.latest("other") is None
    assert "secret" not in repr(by_file)
