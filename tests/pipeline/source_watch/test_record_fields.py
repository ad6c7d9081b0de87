"""The fields of a record, by its format."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from headrace.pipeline.project.decode import DEBEZIUM, Decode
from headrace.pipeline.source_watch.columns import Column, json_columns
from headrace.pipeline.source_watch.field_counts import Fields
from headrace.pipeline.source_watch.record_fields import fields_reader, is_exact
from registry_harness import fake_registry

SCHEMA = "id BIGINT NOT NULL, `a b` STRING, user STRUCT<name: STRING, age: INT NOT NULL>, tags ARRAY<STRUCT<x: INT>>"


def _fields(decode: Decode, value: bytes) -> Fields | None:
    read = fields_reader(decode)
    assert read is not None
    return read(value)


def test_the_columns_of_a_schema():
    inside = {"name": Column(), "age": Column(may_be_null=False)}
    assert json_columns(Decode("json", SCHEMA)) == {
        "id": Column(may_be_null=False), "a b": Column(), "user": Column(inside=inside), "tags": Column(),
    }  # fmt: skip
    required = "user STRUCT<name: STRING NOT NULL> NOT NULL, at TIMESTAMP NOT NULL COMMENT 'when, in UTC'"
    assert json_columns(Decode("json", required)) == {
        "user": Column(False, {"name": Column(False)}),
        "at": Column(False),
    }
    assert json_columns(Decode("json", "v VARIANT")) == {}


@pytest.mark.parametrize(
    ("document", "has_value", "named", "new"),
    [
        ({"id": 1, "a b": "x"}, {"a b": True, "user": False, "tags": False}, {"a b"}, set()),
        ({"a b": None}, {"a b": False, "user": False, "tags": False}, {"a b"}, set()),
        # Names of fields have one case in Spark's reader, too.
        ({"A B": "x"}, {"a b": False, "user": False, "tags": False}, set(), {"A B"}),
        (
            {"user": {"age": 1, "mail": "m"}, "tags": [{"y": 1}], "more": 1},
            {"a b": False, "user": True, "user.name": False, "tags": True},
            {"user", "tags"},
            {"user.mail", "more"},
        ),
    ],
)
def test_json(document, has_value, named, new):
    expected = Fields(has_value, frozenset(named), frozenset(new))
    value = json.dumps(document).encode()
    assert _fields(Decode("json", SCHEMA), value) == expected
    assert _fields(Decode("json", SCHEMA, framing="confluent"), b"\0\0\0\0\x07" + value) == expected


def test_a_value_that_is_no_object_says_nothing():
    for value in (b"", b"{", b"[1]", b"7", b"[" * 100_000):
        assert _fields(Decode("json", SCHEMA), value) is None


@pytest.mark.parametrize("wrap", [lambda change: change, lambda change: {"schema": {}, "payload": change}])
def test_the_row_of_a_change(wrap):
    decode = Decode("json", "id BIGINT, name STRING", envelope=DEBEZIUM)
    change = wrap({"op": "u", "before": None, "after": {"id": 1, "mail": "m"}, "ts_ms": 5})
    assert _fields(decode, json.dumps(change).encode()) == Fields(
        {"id": True, "name": False}, frozenset({"id"}), frozenset({"mail"})
    )
    assert _fields(decode, json.dumps(wrap({"op": "d", "before": {"id": 1}, "after": None})).encode()) is None


def test_formats_without_known_fields():
    for decode in (Decode("raw"), Decode("csv", "a INT"), Decode("avro", "{}"), Decode("json", "v VARIANT")):
        assert fields_reader(decode) is None


# ---------------------------------------------------------------------------------------------------------------- Avro


def _record(*fields: dict) -> dict:
    return {"type": "record", "name": "Order", "fields": list(fields)}


def _optional(name: str, kind: object = "string", **others: object) -> dict:
    return {"name": name, "type": ["null", kind], **others}


def test_avro_by_the_schema_of_the_record():
    money = {"type": "record", "name": "Money", "fields": [_optional("cents", "long"), _optional("currency")]}
    older = {"type": "record", "name": "Money", "fields": [_optional("cents", "long"), _optional("unit")]}
    own = _record({"name": "id", "type": "long"}, _optional("note", aliases=["remark"]), _optional("price", money),
                  _optional("gone"))  # fmt: skip
    with fake_registry() as registry:
        decode = Decode("avro", json.dumps(own), framing="confluent", registry=registry.url)
        same = registry.register(own)
        other = registry.register(
            _record({"name": "id", "type": "long"}, _optional("remark"), _optional("price", older), _optional("extra"))
        )
        read = fields_reader(decode)
        assert read is not None
        assert is_exact(decode)
        names = {"note", "price", "price.cents", "price.currency", "gone"}
        assert read(b"\0" + same.to_bytes(4, "big")) == Fields(
            dict.fromkeys(names, True), frozenset(names), frozenset()
        )
        there = {"note", "price", "price.cents"}
        assert read(b"\0" + other.to_bytes(4, "big") + b"any bytes") == Fields(
            {name: name in there for name in names}, frozenset(there), frozenset({"price.unit", "extra"})
        )
        asked = len(registry.asked)
        read(b"\0" + other.to_bytes(4, "big"))
        assert len(registry.asked) == asked, "a schema is compared once"
        protobuf = registry.register("syntax = 'proto3';", kind="PROTOBUF")
        for bad in (b"", b"{}", b"\0\0\0\0\x63", b"\0" + protobuf.to_bytes(4, "big")):
            assert read(bad) is None


# ------------------------------------------------------------------------------------------------------------ Protobuf


def _order(*fields: tuple[str, int]) -> descriptor_pb2.FileDescriptorProto:
    """A message Order with optional texts."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1)
    for at, (name, number) in enumerate(fields):
        order.oneof_decl.add(name=f"_{name}")
        order.field.add(name=name, number=number, type=9, label=1, oneof_index=at, proto3_optional=True)
    return file


def test_protobuf_by_what_is_set():
    own = descriptor_pb2.FileDescriptorSet(file=[_order(("note", 2), ("price", 3))])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_order(("note", 2), ("discount", 7)))
    written = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    decode = Decode("protobuf", descriptor=base64.b64encode(own.SerializeToString()).decode(), message="shop.Order")
    assert _fields(decode, written(id=1, note="x", discount="y").SerializeToString()) == Fields(
        {"note": True, "price": False}, frozenset({"note"}), frozenset({"number 7"})
    )
    assert _fields(decode, b"\xff") is None
    assert not is_exact(decode)
