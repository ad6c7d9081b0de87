"""Protobuf messages as columns, by a file of descriptors."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from headrace.pipeline.decoding.protobuf_columns import UnsuitableProtobuf, protobuf_columns, protobuf_reader
from headrace.pipeline.project.decode import Decode
from registry_harness import fake_registry

_F = descriptor_pb2.FieldDescriptorProto
_TYPES = {"int32": 5, "int64": 3, "uint64": 4, "double": 1, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}


def _field(message, name: str, number: int, kind: str, *, repeated: bool = False, optional: bool = False) -> None:
    made = message.field.add(name=name, number=number, label=_F.LABEL_REPEATED if repeated else _F.LABEL_OPTIONAL)
    if kind in _TYPES:
        made.type = _TYPES[kind]
    else:
        made.type_name = kind
        made.type = _F.TYPE_ENUM if kind.endswith("Kind") else _F.TYPE_MESSAGE
    if optional:
        message.oneof_decl.add(name=f"_{name}")
        made.oneof_index, made.proto3_optional = len(message.oneof_decl) - 1, True


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Refund")
    order = file.message_type.add(name="Order")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="UNKNOWN", number=0)
    kind.value.add(name="GIFT", number=1)
    item = order.nested_type.add(name="Item")
    _field(item, "sku", 1, "string")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    _field(entry, "key", 1, "string")
    _field(entry, "value", 2, "int32")
    _field(order, "id", 1, "int64")
    _field(order, "big", 2, "uint64")
    _field(order, "note", 3, "string", optional=True)
    _field(order, "kind", 4, ".shop.Kind")
    _field(order, "items", 5, ".shop.Order.Item", repeated=True)
    _field(order, "tags", 6, ".shop.Order.TagsEntry", repeated=True)
    _field(order, "at", 7, ".google.protobuf.Timestamp")
    _field(order, "score", 8, ".google.protobuf.DoubleValue")
    _field(order, "raw", 9, "bytes")
    return file


def _descriptors(file=None) -> str:
    made = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.add().CopyFrom(file or _file())
    return base64.b64encode(made.SerializeToString()).decode()


def order_class(file=None):
    pool = descriptor_pool.DescriptorPool()
    made = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(_descriptors(file)))
    for each in made.file:
        pool.AddSerializedFile(each.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


DECODE = Decode("protobuf", descriptor=_descriptors(), message="shop.Order")


def test_the_columns_of_a_message():
    assert protobuf_columns(DECODE).simpleString() == (
        "struct<id:bigint,big:decimal(20,0),note:string,kind:string,items:array<struct<sku:string>>,"
        "tags:map<string,int>,at:timestamp,score:double,raw:binary>"
    )


def test_the_values_of_a_message():
    order = order_class()(id=7, big=2**64 - 1, kind=1, raw=b"\xff", tags={"a": 1})
    order.items.add(sku="x")
    order.at.FromDatetime(datetime(2026, 11, 17, 8, 0, 0, 123456))
    order.score.value = 0.5
    assert protobuf_reader(DECODE)(order.SerializeToString()) == {
        "id": 7, "big": 2**64 - 1, "note": None, "kind": "GIFT", "items": [{"sku": "x"}], "tags": {"a": 1},
        "at": datetime(2026, 11, 17, 8, 0, 0, 123456, tzinfo=UTC), "score": 0.5, "raw": b"\xff",
    }  # fmt: skip


def test_fields_that_were_not_set():
    assert protobuf_reader(DECODE)(b"") == {
        "id": 0, "big": 0, "note": None, "kind": "UNKNOWN", "items": [], "tags": {}, "at": None, "score": None,
        "raw": b"",
    }  # fmt: skip


def test_records_of_an_older_and_a_newer_schema():
    newer = _file()
    _field(newer.message_type[1], "added", 10, "string")
    written = order_class(newer)(id=1, added="x").SerializeToString()
    assert protobuf_reader(DECODE)(written)["id"] == 1
    reads_newer = protobuf_reader(Decode("protobuf", descriptor=_descriptors(newer), message="shop.Order"))
    assert reads_newer(order_class()(id=2).SerializeToString())["added"] == ""


def changed_types() -> list[bytes]:
    """Records in which ``note``, and ``sku`` inside of ``items``, is a number."""
    changed = _file()
    order = changed.message_type[1]
    next(field for field in order.field if field.name == "note").type = _TYPES["int64"]
    order.nested_type[0].field[0].type = _TYPES["int64"]
    inside = order_class(changed)(id=1)
    inside.items.add(sku=5)
    return [order_class(changed)(id=1, note=5).SerializeToString(), inside.SerializeToString()]


def test_a_field_whose_type_changed_is_not_null():
    """Protobuf itself leaves the field out, as if it was not set."""
    for value, name in zip(changed_types(), ("note", "sku"), strict=True):
        with pytest.raises(ValueError, match=f"{name}: the record has another type than the descriptors"):
            protobuf_reader(DECODE)(value)


def test_bad_values():
    with pytest.raises(ValueError, match=r"the value is not a shop\.Order"):
        protobuf_reader(DECODE)(b"\xff\xff")


@pytest.mark.parametrize(
    ("decode", "complaint"),
    [
        (
            Decode("protobuf", descriptor=DECODE.descriptor, message="Order"),
            r"no message Order: did you mean shop\.Order\?",
        ),
        (Decode("protobuf", descriptor="AAAA", message="shop.Order"), "cannot be read"),
    ],
)
def test_descriptors_that_do_not_fit(decode, complaint):
    with pytest.raises(UnsuitableProtobuf, match=complaint):
        protobuf_columns(decode)


def test_a_message_that_contains_itself():
    file = _file()
    _field(file.message_type[1], "parent", 11, ".shop.Order")
    with pytest.raises(UnsuitableProtobuf, match="contains itself"):
        protobuf_columns(Decode("protobuf", descriptor=_descriptors(file), message="shop.Order"))


def test_the_position_of_the_message_in_a_record_of_a_registry():
    body = order_class()(id=7).SerializeToString()
    with fake_registry() as registry:
        number = registry.register("syntax = 'proto3';", kind="PROTOBUF")
        header = b"\0" + number.to_bytes(4, "big")
        read = protobuf_reader(
            Decode("protobuf", descriptor=DECODE.descriptor, message="shop.Order", framing="confluent",
                   registry=registry.url)
        )  # fmt: skip
        assert read(header + b"\x02\x02" + body)["id"] == 7  # one index: 1, the second message
        with pytest.raises(ValueError, match=r"the record is a shop\.Refund, not a shop\.Order"):
            read(header + b"\x00" + body)  # nothing stands for the first message
        with pytest.raises(ValueError, match=r"the record is a shop\.Order\.Item, not a shop\.Order"):
            read(header + b"\x04\x02\x00" + body)
        with pytest.raises(ValueError, match="ends within the position"):
            read(header + b"\x04\x02")
        with pytest.raises(ValueError, match="which the descriptor file does not have"):
            read(header + b"\x02\x12" + body)
        avro = registry.register({"type": "string"})
        with pytest.raises(ValueError, match="is of type AVRO, not PROTOBUF"):
            read(b"\0" + avro.to_bytes(4, "big") + b"\0")
