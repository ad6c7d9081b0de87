"""Batches of Avro and Protobuf values give what their values give one by one."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from test_protobuf_columns import DECODE as PROTOBUF
from test_protobuf_columns import changed_types, order_class

from headrace.pipeline.decoding import value_batches
from headrace.pipeline.decoding.avro_columns import avro_columns, avro_gatherer
from headrace.pipeline.decoding.avro_times import CountedTime, counted_times, with_numbers
from headrace.pipeline.decoding.events import ERROR, guarded, reading_function
from headrace.pipeline.decoding.protobuf_columns import protobuf_columns, protobuf_gatherer
from headrace.pipeline.decoding.registry import RegistryUnavailable
from headrace.pipeline.decoding.value_batches import batch_decoder
from headrace.pipeline.project.decode import Decode
from registry_harness import fake_registry


class Batches:
    """Decodes batches, and notes whether a batch had to be decoded one by one."""

    def __init__(self, decode: Decode) -> None:
        columns = avro_columns(decode.schema) if decode.format == "avro" else protobuf_columns(decode)
        gatherer = partial(avro_gatherer if decode.format == "avro" else protobuf_gatherer, decode, columns)
        self.columns, self.one = columns, guarded(reading_function(decode), columns)
        self.run = batch_decoder(gatherer, self.one, columns, ERROR)

    def rows(self, *values: bytes | None) -> list[dict]:
        return self.run(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())).to_pylist()

    def expected(self, *values: bytes | None) -> list[dict]:
        keys = pa.nulls(len(values), pa.binary())
        arrays = value_batches._one_by_one(self.one, self.columns, keys, pa.array(values, pa.binary()))
        return pa.StructArray.from_arrays(arrays, [*self.columns.names, ERROR]).to_pylist()


@pytest.fixture
def at_once(monkeypatch):
    """Fails if a batch is decoded one by one."""
    monkeypatch.setattr(value_batches, "_one_by_one", None)


# ---------------------------------------------------------------------------------------------------------------- Avro

MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
TYPES = {
    "id": "long",
    "small": "int",
    "ratio": "float",
    "price": ["null", "double"],
    "name": ["string", "null"],
    "raw": "bytes",
    "flag": "boolean",
    "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
    "code": {"type": "fixed", "name": "Code", "size": 2},
    "uid": {"type": "string", "logicalType": "uuid"},
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "seen": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
    "there": {"type": "long", "logicalType": "local-timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "tags": {"type": "array", "items": ["null", "string"]},
    "money": ["null", MONEY],
    "by_name": {"type": "map", "values": "Money"},
}
ROW = {
    "id": 1 << 40, "small": -5, "ratio": 0.5, "price": 1.25, "name": "ä", "raw": b"\xff", "flag": True, "kind": "B",
    "code": b"ab", "uid": UUID(int=7), "amount": Decimal("12.30"),
    "at": datetime(2026, 11, 18, 1, 2, 3, 456789, tzinfo=UTC), "seen": datetime(1969, 1, 1, 0, 0, 0, 5000, tzinfo=UTC),
    "there": datetime(2026, 11, 18, 1, 2, 3, 4), "day": date(2026, 11, 18), "tags": ["x", None],
    "money": {"cents": 5}, "by_name": {"a": {"cents": 6}},
}  # fmt: skip
NULLS = ROW | {"price": None, "name": None, "seen": None, "money": None, "tags": [], "by_name": {}}


def _record(**types: object) -> dict:
    return {"type": "record", "name": "Row", "fields": [{"name": n, "type": t} for n, t in types.items()]}


def _written(schema: dict, row: dict) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def test_avro_of_all_types():
    batches = Batches(Decode("avro", json.dumps(_record(**TYPES))))
    good = [_written(_record(**TYPES), row) for row in (ROW, NULLS, ROW)]
    bad = [good[0][:-3], good[0] + b"x", b"", None]
    assert batches.rows(*good, *bad, good[0]) == batches.expected(*good, *bad, good[0])
    (row,) = batches.rows(good[0])
    assert (row["at"], row["seen"], row["there"], row["day"]) == (ROW["at"], ROW["seen"], ROW["there"], ROW["day"])
    assert (row["uid"], row["amount"], row["by_name"]) == (str(ROW["uid"]), ROW["amount"], [("a", {"cents": 6})])


@pytest.mark.usefixtures("at_once")
def test_avro_is_not_decoded_one_by_one():
    batches = Batches(Decode("avro", json.dumps(_record(**TYPES))))
    value = _written(_record(**TYPES), ROW)
    first, second, third = batches.rows(value, value + b"x", value)
    assert first == third
    assert second[ERROR] == "ValueError: 1 bytes follow the Avro record"
    assert batches.rows() == []


@pytest.mark.parametrize("number", [253_402_300_800_000_000, -62_135_596_800_000_001, 1 << 62])
def test_a_time_that_no_column_holds_is_a_bad_record(number):
    schema = _record(id="long", at={"type": "long", "logicalType": "timestamp-micros"})
    values = [_written(_record(id="long", at="long"), {"id": at, "at": at}) for at in (5, number)]
    batches = Batches(Decode("avro", json.dumps(schema)))
    good, bad = batches.rows(*values)
    assert [good, bad] == batches.expected(*values)
    assert good == {"id": 5, "at": datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC), ERROR: None}
    assert bad["id"] is None
    assert bad[ERROR] is not None


def test_the_schema_of_the_record_says_what_its_times_mean():
    micros, millis = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "millis"))
    own = {**_record(id="int"), "fields": [{"name": "at", "type": ["null", micros], "aliases": ["time"]}]}
    at = datetime(2026, 11, 18, 1, 2, 3, 456000, tzinfo=UTC)
    written = {"same": _record(at=micros), "other unit": _record(at=millis), "no time": _record(at="long"),
               "alias": _record(time=micros), "alias and unit": _record(time=millis),
               "missing": _record(id="int")}  # fmt: skip
    rows = {"no time": {"at": 5}, "missing": {"id": 1}, "alias": {"time": at}, "alias and unit": {"time": at}}
    with fake_registry() as registry:
        decode = Decode("avro", json.dumps(own), framing="confluent", registry=registry.url)
        values = []
        for name, schema in written.items():
            head = b"\0" + registry.register(schema).to_bytes(4, "big")
            values.append(head + _written(schema, rows.get(name, {"at": at})))
        found = [Batches(decode).rows(value)[0]["at"] for value in values]
        assert found == [Batches(decode).expected(value)[0]["at"] for value in values]
        assert (found[0], found[1], found[3], found[4], found[5]) == (at, at, at, at, None)
        assert Batches(decode).rows(*values) == Batches(decode).expected(*values)
        registry.broken = 500
        with pytest.raises(RegistryUnavailable):
            Batches(decode).rows(values[0])


def test_times_as_numbers():
    schema = json.dumps(_record(**TYPES))
    counted = counted_times(schema)
    assert {name: each.logical for name, each in counted.items()} == {
        "at": "timestamp-micros", "seen": "timestamp-millis", "there": "local-timestamp-micros", "day": "date",
    }  # fmt: skip
    assert counted["at"] == CountedTime("timestamp-micros", ("at",))
    assert counted_times(with_numbers(schema, counted)) == {}
    assert with_numbers(schema, {}) is schema


# ------------------------------------------------------------------------------------------------------------ Protobuf


def _order() -> bytes:
    order = order_class()(id=7, big=2**64 - 1, kind=1, raw=b"\xff", tags={"a": 1}, note="n")
    order.items.add(sku="x")
    order.at.FromDatetime(datetime(2026, 11, 17, 8, 0, 0, 123456))
    order.score.value = 0.5
    return bytes(order.SerializeToString())


def test_protobuf_of_all_types():
    batches = Batches(PROTOBUF)
    values = [_order(), b"", b"\xff\xff", None, _order()]
    assert batches.rows(*values) == batches.expected(*values)


@pytest.mark.usefixtures("at_once")
def test_protobuf_is_not_decoded_one_by_one():
    first, second, third = Batches(PROTOBUF).rows(_order(), b"\xff", _order())
    assert first == third
    assert (first["id"], first["kind"], first["items"], first[ERROR]) == (7, "GIFT", [{"sku": "x"}], None)
    assert first["at"] == datetime(2026, 11, 17, 8, 0, 0, 123456, tzinfo=UTC)
    assert second[ERROR].startswith("ValueError: the value is not a shop.Order")


def test_a_field_whose_type_changed_is_not_null():
    rows = Batches(PROTOBUF).rows(*changed_types(), _order())
    reason = "ValueError: {}: the record has another type than the descriptors"
    assert [row[ERROR] for row in rows] == [reason.format("note"), reason.format("sku"), None]
