"""Checks settings, modes, references, normal forms and imports of the API."""

from __future__ import annotations

import base64
import json

import pytest
from api_harness import Api, record_schema
from google.protobuf.descriptor_pb2 import FileDescriptorProto

INT = '"int"'


async def test_settings_of_all_subjects_and_of_one(api: Api) -> None:
    assert await api.call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert await api.call("PUT", "/config", {"compatibility": "full"}) == (200, {"compatibility": "FULL"})
    assert await api.call("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    assert await api.call("PUT", "/config/s", {"compatibility": "NONE"}) == (200, {"compatibility": "NONE"})
    assert await api.call("GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    await api.register("s", INT)
    assert await api.register("s", '"string"') == (200, {"id": 2})
    assert await api.call("DELETE", "/config/s") == (200, {"compatibilityLevel": "NONE"})
    assert await api.call("DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert await api.call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/config", {"compatibility": "SOME"}, 42203),
        ("/config", {}, 42203),
        ("/config", {"compatibility": 5}, 42203),
        ("/config", {"overrideMetadata": {}}, 422),
        ("/config", {"alias": 5}, 422),
        ("/config/s", {"alias": "__EMPTY"}, 42208),
        ("/config/s", {"compatibilityGroup": []}, 422),
        ("/config", [], 400),
        ("/mode", {"mode": "SOME"}, 42204),
        ("/mode", {}, 42204),
        ("/mode/s", {"mode": "READONLY_OVERRIDE"}, 42205),
    ],
)
async def test_wrong_settings_change_nothing(api: Api, path: str, body: object, code: int) -> None:
    _, answer = await api.call("PUT", path, body)
    assert answer["error_code"] == code
    assert api.topic.records == []


async def test_a_context_has_settings(api: Api) -> None:
    await api.call("PUT", "/config/:.c:", {"compatibility": "NONE"})
    assert await api.call("GET", "/config/:.c:s?defaultToGlobal=true") == (200, {"compatibilityLevel": "NONE"})
    assert await api.call("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "BACKWARD"})


async def test_a_deleted_subject_loses_its_settings(api: Api) -> None:
    await api.register("s", INT)
    await api.call("PUT", "/config/s", {"compatibility": "NONE"})
    await api.call("PUT", "/mode/s", {"mode": "READWRITE"})
    await api.call("DELETE", "/subjects/s")
    assert (await api.call("GET", "/config/s"))[1]["error_code"] == 40408
    assert (await api.call("GET", "/mode/s"))[1]["error_code"] == 40409


async def test_read_only_modes(api: Api) -> None:
    await api.register("s", INT)
    assert await api.call("PUT", "/mode", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert (await api.register("t", INT))[1]["error_code"] == 42205
    assert (await api.call("DELETE", "/subjects/s"))[1]["error_code"] == 42205
    await api.call("PUT", "/mode/s", {"mode": "READWRITE"})
    assert (await api.register("s", '"long"'))[0] == 200
    await api.call("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    assert (await api.register("s", '"float"'))[1]["error_code"] == 42205
    assert await api.call("GET", "/mode/t?defaultToGlobal=true") == (200, {"mode": "READONLY_OVERRIDE"})
    await api.call("DELETE", "/mode")
    assert await api.call("DELETE", "/mode/s") == (200, {"mode": "READWRITE"})
    assert (await api.register("s", '"float"'))[0] == 200


async def test_settings_cannot_change_in_a_read_only_mode(api: Api) -> None:
    await api.call("PUT", "/config/s", {"compatibility": "FULL"})
    await api.call("PUT", "/mode", {"mode": "READONLY"})
    for path in ("/config", "/config/s"):
        assert (await api.call("PUT", path, {"compatibility": "NONE"}))[1]["error_code"] == 42205
        assert (await api.call("DELETE", path))[1]["error_code"] == 42205


async def test_modes_below_a_context_are_deleted_with_it(api: Api) -> None:
    for path in ("/mode", "/mode/s", "/mode/:.c:", "/mode/:.c:s"):
        await api.call("PUT", path, {"mode": "READONLY"})
    assert await api.call("DELETE", "/mode/:.c:?recursive=true") == (200, {"mode": "READONLY"})
    assert (await api.call("GET", "/mode/:.c:s"))[1]["error_code"] == 40409
    assert await api.call("GET", "/mode/s") == (200, {"mode": "READONLY"})
    assert (await api.call("DELETE", "/mode?recursive=true"))[0] == 200
    assert (await api.call("GET", "/mode/s"))[1]["error_code"] == 40409
    assert (await api.call("DELETE", "/mode/:.c:?recursive=true"))[0] == 200


async def test_an_import_may_begin_when_all_versions_are_soft_deleted(api: Api) -> None:
    await api.register("s", INT)
    await api.call("DELETE", "/subjects/s")
    assert (await api.call("PUT", "/mode/s", {"mode": "IMPORT"}))[0] == 200
    assert await api.register("s", '"string"', id=1, version=1) == (200, {"id": 1})
    await api.call("PUT", "/mode/s", {"mode": "READWRITE"})
    assert (await api.call("PUT", "/mode", {"mode": "IMPORT"}))[1]["error_code"] == 42205


async def test_an_import_cannot_begin_if_a_deleted_version_is_referred_to(api: Api) -> None:
    await api.register("part", {"type": "record", "name": "P", "fields": []})
    reference = {"name": "P", "subject": "part", "version": 1}
    await api.register("whole", '{"type":"array","items":"P"}', references=[reference])
    await api.call("DELETE", "/subjects/whole")
    await api.call("DELETE", "/subjects/part")
    assert (await api.call("PUT", "/mode/part", {"mode": "IMPORT"}))[1]["error_code"] == 42206
    assert (await api.call("PUT", "/mode", {"mode": "IMPORT"}))[0] == 200
    assert await api.call("GET", "/subjects?deleted=true") == (200, [])


async def test_an_alias_stands_for_its_subject(api: Api) -> None:
    await api.register("s", INT)
    assert await api.call("PUT", "/config/al", {"alias": "s"}) == (200, {"alias": "s"})
    assert (await api.call("GET", "/subjects/al/versions/latest"))[1]["subject"] == "s"
    assert (await api.call("GET", "/schemas/ids/1?subject=al"))[1]["subject"] == "s"
    assert await api.register("al", '"long"') == (200, {"id": 2})
    assert await api.call("GET", "/subjects") == (200, ["s"])
    assert (await api.call("GET", "/config/al"))[1]["alias"] == "s"
    assert (await api.call("GET", "/config/s"))[1]["error_code"] == 40408
    await api.call("PUT", "/config/al", {"alias": ""})
    assert (await api.call("GET", "/subjects/al/versions"))[1]["error_code"] == 40401


async def test_an_alias_in_a_context_is_of_the_context(api: Api) -> None:
    await api.register(":.c:s", INT)
    await api.call("PUT", "/config/:.c:al", {"alias": "s"})
    assert (await api.call("GET", "/contexts/.c/subjects/al/versions/1"))[1]["subject"] == ":.c:s"


async def test_versions_of_another_compatibility_group_do_not_count(api: Api) -> None:
    assert (await api.call("PUT", "/config/s", {"compatibilityGroup": "major"}))[0] == 200
    first, second = {"properties": {"major": "1"}}, {"properties": {"major": "2"}}
    await api.register("s", record_schema("a"), metadata=first)
    assert (await api.register("s", '"string"', metadata=first))[0] == 409
    assert (await api.register("s", '"string"', metadata=second))[0] == 200
    assert (await api.register("s", '"int"'))[0] == 409  # takes over the second group
    assert (await api.register("s", record_schema("a", b=1), metadata=first))[0] == 200


async def test_imports_keep_ids_and_versions(api: Api) -> None:
    assert (await api.register("s", INT, id=7))[1]["error_code"] == 42205
    assert await api.call("PUT", "/mode", {"mode": "IMPORT"}) == (200, {"mode": "IMPORT"})
    assert (await api.register("s", INT))[1]["error_code"] == 42205
    assert await api.register("s", INT, id=7, version=3) == (200, {"id": 7})
    assert await api.register("s", '"string"', id=9, version=5) == (200, {"id": 9})
    assert (await api.register("s", '"bytes"', id=7))[1]["error_code"] == 42205
    assert (await api.register("s", '"bytes"', id=8, version=5))[1]["error_code"] == 42205
    assert await api.call("GET", "/subjects/s/versions") == (200, [3, 5])
    await api.call("PUT", "/mode", {"mode": "READWRITE"})
    assert (await api.call("PUT", "/mode", {"mode": "IMPORT"}))[1]["error_code"] == 42205
    assert (await api.call("PUT", "/mode?force=true", {"mode": "IMPORT"}))[0] == 200
    await api.call("PUT", "/mode", {"mode": "READWRITE"})
    assert await api.register("t", '"double"') == (200, {"id": 10})


async def test_references_of_avro(api: Api) -> None:
    await api.register("part", {"type": "record", "name": "Part", "namespace": "n", "fields": []})
    whole = {"type": "record", "name": "Whole", "fields": [{"name": "part", "type": "n.Part"}]}
    reference = {"name": "n.Part", "subject": "part", "version": 1}
    status, answer = await api.register("whole", whole)
    assert (status, answer["error_code"]) == (422, 42201)
    assert await api.register("whole", whole, references=[{**reference, "version": -1}]) == (200, {"id": 2})
    assert (await api.call("GET", "/schemas/ids/2"))[1]["references"] == [reference]
    assert await api.call("GET", "/subjects/part/versions/1/referencedby") == (200, [2])
    assert (await api.call("DELETE", "/subjects/part/versions/1"))[1]["error_code"] == 42206
    assert (await api.call("DELETE", "/subjects/part"))[1]["error_code"] == 42206
    await api.call("DELETE", "/subjects/whole")
    assert await api.call("DELETE", "/subjects/part") == (200, [1])
    assert (await api.call("DELETE", "/subjects/part?permanent=true"))[1]["error_code"] == 42206
    missing = await api.register("other", whole, references=[{**reference, "version": 9}])
    assert missing[1]["error_code"] == 42201


async def test_references_of_json_schema_and_protobuf(api: Api) -> None:
    await api.register("int.json", {"type": "integer"}, schemaType="JSON")
    outer = {"type": "object", "properties": {"x": {"$ref": "int.json"}}, "additionalProperties": False}
    reference = {"name": "int.json", "subject": "int.json", "version": 1}
    assert (await api.register("j", outer, schemaType="JSON", references=[reference]))[0] == 200
    narrow = {**outer, "properties": {"x": {"type": "string"}}}
    assert (await api.register("j", narrow, schemaType="JSON"))[0] == 409
    await api.register(
        "a/part.proto", 'syntax = "proto3"; package a; message Part { int32 x = 1; }', schemaType="PROTOBUF"
    )
    text = 'syntax = "proto3"; import "a/part.proto"; message Whole { a.Part part = 1; }'
    reference = {"name": "a/part.proto", "subject": "a/part.proto", "version": 1}
    assert (await api.register("p", text, schemaType="PROTOBUF"))[1]["error_code"] == 42201
    status, answer = await api.register("p", text, schemaType="PROTOBUF", references=[reference])
    assert status == 200
    assert (await api.call("GET", f"/schemas/ids/{answer['id']}"))[1]["schema"] == text


async def test_descriptors_and_text_are_the_same_protobuf_schema(api: Api) -> None:
    text = 'syntax = "proto3";\npackage p;\n// a comment\nmessage M { optional int32 a_b = 1; map<string, M> m = 2; }'
    await api.register("s", text, schemaType="PROTOBUF")
    status, answer = await api.call("GET", "/schemas/ids/1?format=serialized")
    file = FileDescriptorProto.FromString(base64.b64decode(answer["schema"]))
    assert (status, [each.name for each in file.message_type]) == (200, ["M"])
    file.name = "elsewhere.proto"
    encoded = base64.b64encode(file.SerializeToString()).decode()
    assert await api.register("s", encoded, schemaType="PROTOBUF") == (200, {"id": 1})
    assert await api.register("t", encoded, schemaType="PROTOBUF") == (200, {"id": 2})
    stored = (await api.call("GET", "/schemas/ids/2"))[1]["schema"]
    assert "optional int32 a_b = 1;" in stored
    assert "map<string, .p.M> m = 2;" in stored


async def test_the_normal_form(api: Api) -> None:
    first, second = '{"type":"string","title":"T"}', '{"title":"T","type":"string"}'
    assert await api.register("s", first, "?normalize=true", schemaType="JSON") == (200, {"id": 1})
    assert (await api.call("GET", "/schemas/ids/1"))[1]["schema"] == second
    await api.call("PUT", "/config/t", {"compatibility": "NONE", "normalize": True})
    assert await api.register("t", first, schemaType="JSON") == (200, {"id": 1})
    assert await api.register(
        "p", 'syntax="proto3";message M{int32 a=1;}', "?normalize=true", schemaType="PROTOBUF"
    ) == (
        200,
        {"id": 2},
    )
    assert (await api.call("GET", "/schemas/ids/2"))[1][
        "schema"
    ] == 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n}\n'
    assert json.loads((await api.raw("GET", "/subjects/s/versions/1/schema"))[1])["title"] == "T"
    assert (await api.call("POST", "/subjects/s", {"schema": record_schema("a")}))[1]["error_code"] == 40403
