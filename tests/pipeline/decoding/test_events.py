"""Records to events: every format, and every way in which a record can be bad."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pytest

from headrace.pipeline.decoding.events import (
    UnsuitableDecode,
    bad_rows,
    columns_of,
    decode_frame,
    event_schema,
    good_rows,
)
from headrace.pipeline.project.definition import Decode, FileText
from headrace.pipeline.spark.source.data_source import spark_schema

AT = datetime(2026, 11, 16, 8, 30, tzinfo=UTC)


@pytest.fixture
def decoded(spark):
    """Events as dicts, and bad records as {offset: reason}."""

    def run(decode: Decode, *values: bytes | None, key: bytes | None = b"k"):
        rows = [(key, value, "clicks", 0, offset, AT, 0) for offset, value in enumerate(values)]
        frame = decode_frame(decode, spark.createDataFrame(rows, spark_schema(include_headers=False)))
        collected = [row.asDict(recursive=True) for row in frame.collect()]
        good = [row for row in collected if row["_error"] is None]
        return good, {row["_offset"]: row["_error"] for row in collected if row["_error"] is not None}

    return run


def test_json(decoded):
    decode = Decode("json", "user STRING NOT NULL, ms BIGINT, at TIMESTAMP, tags ARRAY<STRING>")
    good, bad = decoded(
        decode,
        b'{"user":"ann","ms":7,"at":"2026-11-16T08:00:00Z","tags":["a","b"],"more":1}',
        b'{"user":"bob"}',
        b'{"user":"ann","ms":"x"}',
        b"{bad",
        b"",
        b"null",
        b'[{"user":"ann"}]',
        b'{"ms":1}',
        b"\xff\xfe",
        None,
    )
    assert [(row["user"], row["ms"], row["tags"]) for row in good] == [("ann", 7, ["a", "b"]), ("bob", None, None)]
    assert bad == {
        2: "ms: the value does not fit BIGINT",
        3: "the value is not a JSON object",
        4: "the value is empty",
        5: "the value is not a JSON object",
        6: "the value is not a JSON object",
        7: "user: missing, but the schema says NOT NULL",
        8: "the value is not UTF-8",
        9: "the record has no value",
    }


def test_where_an_event_stood(decoded):
    ((row,), _) = decoded(Decode("json", "user STRING"), b'{"user":"ann"}')
    assert (row["_topic"], row["_partition"], row["_offset"], row["_key"]) == ("clicks", 0, 0, b"k")
    assert row["_value"] == b'{"user":"ann"}'


def test_good_and_bad_rows(spark):
    decode = Decode("json", "user STRING")
    rows = [(None, b'{"user":"ann"}', "t", 0, 0, AT, 0), (b"k", b"{", "t", 1, 5, AT, 0)]
    frame = decode_frame(decode, spark.createDataFrame(rows, spark_schema(include_headers=False)))
    assert good_rows(frame).columns == event_schema(decode).names
    assert [row.user for row in good_rows(frame).collect()] == ["ann"]
    ((topic, partition, offset, *_, value, error),) = bad_rows(frame).collect()
    assert (topic, partition, offset, value) == ("t", 1, 5, b"{")
    assert error == "the value is not a JSON object"


def test_csv(decoded):
    decode = Decode("csv", "user STRING, ms BIGINT", {"sep": ";"})
    good, bad = decoded(decode, b"ann;7", b'"a;b";8', b"ann", b"ann;x", b"ann;1;2", b" ", None)
    assert [(row["user"], row["ms"]) for row in good] == [("ann", 7), ("a;b", 8)]
    assert set(bad) == {2, 3, 4, 5, 6}
    assert bad[3] == "ms: the value does not fit BIGINT"


def test_raw(decoded):
    good, bad = decoded(Decode("raw"), b"\x00\xff", None)
    assert [row["value"] for row in good] == [b"\x00\xff", None]
    assert bad == {}


AVRO = {
    "type": "record",
    "name": "click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "ms", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "kinds", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
CLICK = {"user": "ann", "ms": None, "at": AT, "price": Decimal("1.25"), "kind": "B", "tags": ["x"],
         "day": date(2026, 1, 2)}  # fmt: skip


def _avro(row: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


def test_avro(decoded):
    good, bad = decoded(Decode("avro", json.dumps(AVRO)), _avro(CLICK), _avro(CLICK)[:-2], _avro(CLICK) + b"x", None)
    (row,) = good
    assert (row["user"], row["ms"], row["price"], row["kind"]) == ("ann", None, Decimal("1.25"), "B")
    assert (row["tags"], row["day"]) == (["x"], date(2026, 1, 2))
    assert bad[2] == "ValueError: 1 bytes follow the Avro record"
    assert bad[3] == "ValueError: the record has no value"
    assert set(bad) == {1, 2, 3}


def test_avro_behind_confluents_header(decoded):
    decode = Decode("avro", json.dumps(AVRO), framing="confluent")
    good, bad = decoded(decode, b"\x00\x00\x00\x00\x07" + _avro(CLICK), b"\x01\x00\x00\x00\x07" + _avro(CLICK))
    assert len(good) == 1
    assert bad == {1: "ValueError: the value does not begin with Confluent's five bytes"}


def test_avro_types_by_their_full_names_and_unions_inside_of_a_type(decoded):
    suit = {"type": "enum", "name": "Suit", "symbols": ["X", "Y"]}
    fields = {"a": suit, "b": "com.acme.Suit", "c": "Suit", "d": {"type": ["null", "string"]}}
    schema = {"type": "record", "name": "E", "namespace": "com.acme"}
    schema["fields"] = [{"name": name, "type": type_} for name, type_ in fields.items()]
    decode = Decode("avro", json.dumps(schema))
    good, bad = decoded(decode, b"\x00\x02\x00\x00", b"\x00\x02\x00\x02\x02z")
    assert [(row["a"], row["b"], row["c"], row["d"]) for row in good] == [("X", "Y", "X", None), ("X", "Y", "X", "z")]
    assert bad == {}
    assert [field.nullable for field in columns_of(decode)] == [False, False, False, True]


def test_avro_that_is_no_table(spark):
    schema = {"type": "record", "name": "r", "fields": [{"name": "u", "type": ["int", "string"]}]}
    with pytest.raises(UnsuitableDecode, match='a union of \\["int", "string"\\] has no column type'):
        columns_of(Decode("avro", json.dumps(schema)))
    schema["fields"][0]["type"] = "strin"
    with pytest.raises(UnsuitableDecode, match="'strin' is not an Avro type"):
        columns_of(Decode("avro", json.dumps(schema)))
    with pytest.raises(UnsuitableDecode, match="not an Avro schema: "):
        columns_of(Decode("avro", '{"type": "record"}'))


FUNCTION = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Parts:
    user: str
    ms: int

def by_value(value):
    if value == b"none":
        return None
    if value == b"surrogate":
        return {"user": "\\ud800", "ms": 1}
    if value == b"huge":
        return {"user": "x", "ms": 2**70}
    user, ms = value.decode().split("=")
    parts = Parts(user, int(ms))
    return {"user": parts.user, "ms": parts.ms}

def by_both(key, value):
    return key.decode(), len(value)
"""


def test_a_python_function(decoded):
    decode = Decode("python", "user STRING, ms BIGINT", function=FileText("d.py", FUNCTION, "by_value"))
    good, bad = decoded(decode, b"ann=7", b"ann", b"ann=x", b"none", b"surrogate", b"huge", None)
    assert [(row["user"], row["ms"]) for row in good] == [("ann", 7)]
    assert set(bad) == {1, 2, 3, 4, 5, 6}
    assert bad[2] == "ValueError: invalid literal for int() with base 10: 'x'"
    assert bad[3] == "TypeError: the function returned nothing, not a mapping or 2 values"


WIDENING = """
from decimal import Decimal
GIVEN = {
    b"int": {"d": 7, "e": 7},
    b"decimal": {"d": Decimal("1.5"), "e": Decimal("1.5")},
    b"bytes": {"s": b"ann"},
    b"text": {"s": "ann", "d": "7"},
    b"scale": {"e": Decimal("1.239")},
    b"bool": {"d": True},
    b"nested": {"at": {"x": 1}},
}
def decode(value):
    return GIVEN[value]
"""


def test_an_integer_of_a_python_function_widens(decoded):
    schema = "d DOUBLE, e DECIMAL(9,2), s STRING, at STRUCT<x: FLOAT>"
    decode = Decode("python", schema, function=FileText("d.py", WIDENING, "decode"))
    good, bad = decoded(decode, b"int", b"decimal", b"bytes", b"text", b"scale", b"bool", b"nested")
    assert [(row["d"], row["e"]) for row in good[:2]] == [(7.0, Decimal("7.00")), (1.5, Decimal("1.50"))]
    assert good[2]["at"] == {"x": 1.0}
    assert bad == {
        2: "s: STRING cannot hold b'ann' (bytes)",
        3: "d: DOUBLE cannot hold '7' (str)",
        4: "e: DECIMAL(9,2) cannot hold Decimal('1.239') (Decimal)",
        5: "d: DOUBLE cannot hold True (bool)",
    }


def test_a_python_function_of_key_and_value(decoded):
    decode = Decode("python", "user STRING, ms BIGINT", function=FileText("d.py", FUNCTION, "by_both"))
    good, _ = decoded(decode, b"12345")
    assert [(row["user"], row["ms"]) for row in good] == [("k", 5)]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("user STRIN", "decode.schema cannot be read"),
        ("user STRING, _offset BIGINT", "every event already has a column _offset"),
        ("user STRING, User BIGINT", "decode.schema has the column user twice"),
    ],
)
def test_schemas_that_cannot_be(spark, schema, complaint):
    with pytest.raises(UnsuitableDecode, match=complaint):
        columns_of(Decode("json", schema))
