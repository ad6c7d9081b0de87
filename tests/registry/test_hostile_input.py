"""Checks that bad and hostile requests get an error in bounded time, and change nothing."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from api_harness import Api
from google.protobuf.descriptor_pb2 import FileDescriptorProto

DEEP_JSON = "[" * 100_000
DEEP_SCHEMA = '{"type":"array","items":' * 300 + '"int"' + "}" * 300
WRONG_DESCRIPTOR = base64.b64encode(
    FileDescriptorProto(
        name="f", message_type=[{"name": "M", "field": [{"name": "n", "number": 1, "type": 11, "type_name": ".N"}]}]
    ).SerializeToString()
).decode()
NESTED_MESSAGES = 'syntax = "proto3";' + "message M {" * 200 + "}" * 200


def avro(text: str) -> dict[str, Any]:
    return {"schema": text}


def json_schema(schema: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), "schemaType": "JSON"}


def avro_field(fields: str) -> dict[str, Any]:
    return avro('{"type":"record","name":"R","fields":[' + fields + "]}")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"x" * (10 << 20), 413, 413),
        (DEEP_JSON.encode(), 400, 400),
        (b"\xff\xfe\x00", 400, 400),
        (b"", 400, 400),
        (b"[]", 400, 400),
        (b"null", 400, 400),
        ({}, 422, 422),
        ({"schema": 5}, 422, 422),
        ({"schema": '"int"', "schemaType": "XML"}, 422, 422),
        ({"schema": '"int"', "schemaType": ["AVRO"]}, 422, 422),
        ({"schema": '"int"', "references": "x"}, 422, 422),
        ({"schema": '"int"', "references": [{}]}, 422, 422),
        ({"schema": '"int"', "references": [{"name": "a", "subject": "s", "version": 0}]}, 422, 422),
        ({"schema": '"int"', "references": [{}] * 1000}, 422, 422),
        ({"schema": '"int"', "metadata": [1]}, 422, 422),
        ({"schema": '"int"', "id": "1"}, 422, 422),
        (avro(""), 422, 42201),
        (avro("   "), 422, 42201),
        (avro('"nothing"'), 422, 42201),
        (avro("{"), 422, 42201),
        (avro("5"), 422, 42201),
        (avro("null"), 422, 42201),
        (avro('{"type":"record"}'), 422, 42201),
        (avro('{"type":"record","name":"R","fields":5}'), 422, 42201),
        (avro('{"type":"record","name":"R","fields":[{"name":"x"}]}'), 422, 42201),
        (avro('{"type":"enum","name":"E","symbols":["a","a"]}'), 422, 42201),
        (avro('{"type":"record","name":"a-b","fields":[]}'), 422, 42201),
        (avro('{"type":"record","name":"n..R","fields":[]}'), 422, 42201),
        (avro('{"type":"record","name":"R","namespace":"a-b","fields":[]}'), 422, 42201),
        (avro('{"type":"record","name":"R","aliases":["a-b"],"fields":[]}'), 422, 42201),
        (avro('{"type":"record","name":"R","aliases":"a","fields":[]}'), 422, 42201),
        (avro_field('{"name":"x y","type":"int"}'), 422, 42201),
        (avro_field('{"name":"x","type":"int"},{"name":"x","type":"int"}'), 422, 42201),
        (avro_field('{"name":"x","type":"int","aliases":["a.b"]}'), 422, 42201),
        (avro_field('{"name":"x","type":"int","order":"up"}'), 422, 42201),
        (avro_field('{"name":"x","type":["null",["int"]]}'), 422, 42201),
        (avro_field('{"name":"x","type":["int","int"]}'), 422, 42201),
        (avro_field('{"name":"x","type":["int",{"type":"int","logicalType":"date"}]}'), 422, 42201),
        (avro_field('{"name":"x","type":{"type":"array","items":{"type":"map","values":["int","int"]}}}'), 422, 42201),
        (avro('{"type":"fixed","name":"F","size":-1}'), 422, 42201),
        (avro('{"type":"fixed","name":"F","size":true}'), 422, 42201),
        (avro('{"type":"enum","name":"E","symbols":["a b"]}'), 422, 42201),
        (avro('{"type":"enum","name":"E","symbols":["a"],"default":"b"}'), 422, 42201),
        (avro(DEEP_SCHEMA), 422, 42201),
        (avro(DEEP_JSON), 422, 42201),
        (avro('"' + "x" * 800_000 + '"'), 422, 42201),
        (avro('{"type":"string","doc":"\\ud800"}'), 422, 42201),
        ({"schema": "[1]", "schemaType": "JSON"}, 422, 42201),
        ({"schema": '{"type":"nothing"}', "schemaType": "JSON"}, 422, 42201),
        ({"schema": '{"$schema":5}', "schemaType": "JSON"}, 422, 42201),
        ({"schema": '{"maximum":NaN}', "schemaType": "JSON"}, 422, 42201),
        ({"schema": '{"maximum":1e999}', "schemaType": "JSON"}, 422, 42201),
        (json_schema({"$ref": "#/definitions/none"}), 422, 42201),
        (json_schema({"definitions": {"a": {}}, "anyOf": [{"$ref": "#/definitions/a/b"}]}), 422, 42201),
        (json_schema({"properties": {"a": {"$ref": "other.json"}}}), 422, 42201),
        (json_schema({"items": [{"$ref": "http://127.0.0.1:1/x.json#/a"}]}), 422, 42201),
        (json_schema({"$defs": {"a": {"$anchor": "x"}}, "$ref": "#y"}), 422, 42201),
        (json_schema({"$id": "http://[", "$ref": "x"}), 422, 42201),
        ({"schema": "message {", "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": 'syntax = "proto3"; message M { N n = 1; }', "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": 'syntax = "proto3"; import "/etc/passwd";', "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": 'syntax = "proto3"; import "../../../etc/passwd";', "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": NESTED_MESSAGES, "schemaType": "PROTOBUF"}, 422, 42201),
        ({"schema": WRONG_DESCRIPTOR, "schemaType": "PROTOBUF"}, 422, 42201),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_bad_schema_is_refused_and_nothing_is_written(api: Api, body: Any, status: int, code: int) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found, answer = await api.call("POST", "/subjects/s/versions", data)
    assert (found, answer["error_code"]) == (status, code), answer
    assert len(answer["message"]) < 2_000
    assert api.topic.records == []


@pytest.mark.parametrize(
    "schema",
    [
        '{"type":"record","name":"n.m.R","namespace":"ignored","fields":[]}',
        '{"type":"record","name":"R","namespace":"","aliases":["n.Old"],"fields":[]}',
        '{"type":"fixed","name":"F","size":0}',
        '[{"type":"record","name":"A","namespace":"n","fields":[]},{"type":"record","name":"A","fields":[]}]',
        '["null","int",{"type":"array","items":"int"},{"type":"map","values":"int"}]',
        '{"type":"record","name":"R","fields":[{"name":"next","type":["null","R"],"order":"ignore"}]}',
        '{"type":"error","name":"E","fields":[{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4}}]}',
    ],
)
async def test_unusual_schemas_that_avro_allows_are_accepted(api: Api, schema: str) -> None:
    assert (await api.register("s", schema))[0] == 200


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "http://json-schema.org/draft-07/schema#"},
        {"definitions": {"a/b c": {}}, "$ref": "#/definitions/a~1b%20c"},
        {"anyOf": [{"type": "null"}], "not": {"$ref": "#/anyOf/0"}},
        {"$id": "http://x/root.json", "$ref": "http://x/root.json#/$defs/a", "$defs": {"a": {"$ref": "root.json"}}},
        {"$id": "http://x/root.json", "$ref": "part.json", "$defs": {"p": {"$id": "part.json", "type": "null"}}},
        {
            "$defs": {"p": {"$id": "http://y/p", "$ref": "#/$defs/q", "$defs": {"q": {"$anchor": "n"}}}},
            "$ref": "http://y/p#n",
        },
        {"definitions": {"a": {"$id": "#old"}}, "$ref": "#old"},
        {"properties": {"$ref": {"type": "string"}}, "default": {"$ref": "#/none"}, "enum": [{"$ref": "none"}]},
        True,
    ],
    ids=str,
)
async def test_references_within_a_json_schema_are_found(api: Api, schema: Any) -> None:
    assert (await api.register("s", json.dumps(schema), schemaType="JSON"))[0] == 200


async def test_a_schema_that_another_registry_accepted_stays_in_use(api: Api) -> None:
    wrong = '{"type":"record","name":"a-b","fields":[]}'
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    api.state.apply(
        json.dumps(key).encode(), json.dumps({"subject": "s", "version": 1, "id": 1, "schema": wrong}).encode()
    )
    assert (await api.call("POST", "/subjects/s", {"schema": wrong}))[1]["id"] == 1
    assert (await api.register("s", wrong))[1]["id"] == 1
    assert (await api.register("t", wrong))[1]["error_code"] == 42201


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"/subjects/{'x' * 5_000}/versions", 422, 42208),
        ("/subjects/%00/versions", 422, 42208),
        ("/subjects/__GLOBAL/versions", 422, 42208),
        ("/subjects/%FF/versions", 400, 400),
        ("/subjects/:.c:/versions", 422, 42208),
        (f"/subjects?{'&'.join(f'a{number}=1' for number in range(1_000))}", 400, 400),
        ("/subjects?deleted=%FF", 400, 400),
        ("/a" * 10_000, 404, 404),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_names_are_refused(api: Api, path: str, status: int, code: int) -> None:
    found, answer = await api.call("GET", path)
    assert (found, answer["error_code"]) == (status, code)
    assert len(answer["message"]) < 1_000


async def test_records_whose_references_are_a_cycle_are_answered(api: Api) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        key = {"keytype": "SCHEMA", "subject": name, "version": 1, "magic": 1}
        references = [{"name": other, "subject": other, "version": 1}]
        number = 1 if name == "a" else 2
        value = {"subject": name, "version": 1, "id": number, "schema": '"int"', "references": references}
        api.state.apply(json.dumps(key).encode(), json.dumps(value).encode())
    assert (await api.call("GET", "/schemas/ids/1"))[0] == 200
    status, answer = await api.register("a", '"int"', references=[{"name": "b", "subject": "b", "version": 1}])
    assert (status, answer["error_code"]) == (422, 42201)
    assert "lead back to themselves" in answer["message"]


async def test_a_compiler_that_does_not_finish_is_no_verdict_about_the_schema(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.registry.formats.protoc._TIMEOUT_S", 0)
    status, answer = await api.register("s", 'syntax = "proto3"; message Slow {}', schemaType="PROTOBUF")
    assert (status, answer["error_code"]) == (500, 50002)
    assert api.topic.records == []
