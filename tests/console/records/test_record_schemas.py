"""Values that were written with a schema registry: Avro, Protobuf and JSON Schema, from a real registry."""

from __future__ import annotations

import io
import json
from urllib.request import Request, urlopen

import fastavro
import pytest

from headrace.console.records.decoding import Decoder
from headrace.console.records.masking import Masks
from headrace.console.records.registry import RecordSchemas
from headrace.testing.registry_process import RegistryProcess

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
PROTOBUF = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "user.proto";
message Other { string x = 1; }
message Order { int64 id = 1; User user = 2; google.protobuf.Timestamp at = 3; message Line { int32 n = 1; } }
"""


@pytest.fixture(scope="module")
def registry(broker, tmp_path_factory):
    with RegistryProcess(broker.bootstrap_servers, tmp_path_factory.mktemp("registry")) as process:
        yield process


def register(url, subject, text, kind="AVRO", references=()):
    body = {"schema": text, "schemaType": kind, "references": list(references)}
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(f"{url}/subjects/{subject}/versions", json.dumps(body).encode(), headers)) as answer:
        return int(json.load(answer)["id"])


def framed(schema_id, data):
    return b"\0" + schema_id.to_bytes(4, "big") + data


@pytest.fixture(scope="module")
def values(registry):
    """By kind: a value with the id 7 and the user ann."""
    from datetime import UTC, datetime
    from decimal import Decimal

    out = io.BytesIO()
    order = {"id": 7, "user": "ann", "at": datetime(2026, 1, 31, tzinfo=UTC), "raw": b"\xff", "price": Decimal("1.50")}
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), order)
    avro = register(registry.url, "avro", json.dumps(AVRO))
    register(registry.url, "user", 'syntax = "proto3"; message User { string name = 1; }', "PROTOBUF")
    reference = {"name": "user.proto", "subject": "user", "version": 1}
    protobuf = register(registry.url, "protobuf", PROTOBUF, "PROTOBUF", [reference])
    schema = register(registry.url, "json", '{"type": "object"}', "JSON")
    return {
        "avro": framed(avro, out.getvalue()),
        # The second message of the file: one index, which is 1.
        "protobuf": framed(protobuf, b"\x02\x02" + b"\x08\x07\x12\x05\x0a\x03ann\x1a\x02\x08\x01"),
        "json schema": framed(schema, b'{"id": 7, "user": "ann"}'),
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "avro",
            {"id": 7, "user": "ann", "at": "2026-01-31 00:00:00+00:00", "raw": "\\xff", "price": "1.50"},
        ),
        ("protobuf", {"id": "7", "user": {"name": "ann"}, "at": "1970-01-01T00:00:01Z"}),
        ("json schema", {"id": 7, "user": "ann"}),
    ],
)
async def test_a_value_is_decoded_searched_and_downloaded(
    open_console, new_topic, producer, registry, values, kind, expected
):
    console = await open_console(registry=registry.url)
    topic = new_topic()
    producer.send(topic, value=values[kind]).result()
    shown = (await console.json(f"/api/topics/{topic}/records/0/0"))["record"]["value"]
    assert (shown["format"], json.loads(shown["text"]), shown["problem"]) == (kind, expected, "")
    hexed = (await console.json(f"/api/topics/{topic}/records/0/0?value_format=hex"))["record"]["value"]
    assert hexed["format"] == "hex"
    user = "value.user.name" if kind == "protobuf" else "value.user"
    assert (await console.json(f"/api/topics/{topic}/search?go=true&filter={user} = 'ann'"))["found"] == 1
    line = json.loads((await console.get(f"/topics/{topic}/search/download")).text)
    assert (line["value"], line["value_encoding"]) == (expected, kind)
    tail = await console.json(f"/api/topics/{topic}/tail?positions=0:0")
    assert json.loads(tail["records"][0]["value"]) == expected


async def test_masks_hide_fields_of_schemas(open_console, new_topic, producer, registry, values):
    console = await open_console(registry=registry.url, masks=("user",))
    topic = new_topic()
    for value in values.values():
        producer.send(topic, value=value).result()
    for text in ("auto", "hex", "text"):
        shown = await console.json(f"/api/topics/{topic}/records?value_format={text}")
        assert "ann" not in json.dumps(shown)
        assert "61 6e 6e" not in json.dumps(shown)
    assert (await console.json(f"/api/topics/{topic}/search?go=true&text=ann"))["found"] == 0
    assert "ann" not in (await console.get(f"/topics/{topic}/search/download")).text


def test_what_cannot_be_decoded_is_shown_with_the_reason(registry, values):
    decoder = Decoder(Masks(), RecordSchemas(registry.url))
    unknown = decoder.show(framed(99_999, b"x"))
    assert (unknown.format, "no schema with the id 99999" in unknown.problem) == ("hex", True)
    for kind, value in values.items():
        if kind != "protobuf":
            assert decoder.show(value[:-1]).problem != ""
        assert decoder.show(value[:6]).format != kind
    assert "beyond" not in decoder.show(values["protobuf"][:5] + b"\x7e").problem


def test_a_registry_that_is_away_is_asked_once(monkeypatch):
    schemas = RecordSchemas("http://127.0.0.1:9")
    decoder = Decoder(Masks(), schemas)
    asked = []
    ask = schemas._registry.schema
    monkeypatch.setattr(schemas._registry, "schema", lambda number: (asked.append(number), ask(number))[1])
    for number in range(5):
        assert "does not answer" in decoder.show(framed(number, b"x")).problem
    assert asked == [0]
