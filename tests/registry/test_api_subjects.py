"""Checks subjects, versions and ids of the API, with Confluent's codes and shapes."""

from __future__ import annotations

import json

import pytest
from api_harness import Api, record_schema, with_guid

INT = '"int"'


async def test_registered_schemas_are_found_by_id_version_and_subject(api: Api) -> None:
    assert await api.register("s", {"type": "string"}) == (200, {"id": 1})
    assert await api.call("GET", "/schemas/ids/1") == (200, with_guid('"string"'))
    assert await api.raw("GET", "/schemas/ids/1/schema") == (200, b'"string"')
    expected = with_guid('"string"', subject="s", version=1, id=1)
    assert await api.call("GET", "/subjects/s/versions/1") == (200, expected)
    assert await api.call("GET", "/subjects/s/versions/latest") == (200, expected)
    assert await api.call("GET", "/subjects/s/versions/-1") == (200, expected)
    assert await api.raw("GET", "/subjects/s/versions/1/schema") == (200, b'"string"')
    assert await api.call("POST", "/subjects/s", {"schema": '{"type":"string"}'}) == (200, expected)
    assert await api.call("GET", "/schemas/ids/1/subjects") == (200, ["s"])
    assert await api.call("GET", "/schemas/ids/1/versions") == (200, [{"subject": "s", "version": 1}])
    assert await api.call("GET", "/subjects") == (200, ["s"])
    assert await api.call("GET", "/schemas") == (200, [expected])
    assert await api.call("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert await api.call("GET", "/schemas/ids/1?fetchMaxId=true") == (200, with_guid('"string"', maxId=1))
    assert await api.call("GET", "/schemas/ids/1?subject=s") == (200, with_guid('"string"', subject="s", version=1))
    assert await api.call("GET", "/") == (200, {})
    assert await api.call("POST", "/", {}) == (200, {})
    assert (await api.call("GET", "/v1/metadata/id"))[1] == {"id": "", "scope": {"path": [], "clusters": {}}}


async def test_the_same_schema_has_one_id_and_no_second_version(api: Api) -> None:
    assert await api.register("s", record_schema("a")) == (200, {"id": 1})
    spaced = json.dumps(json.loads(record_schema("a")), indent=4)
    assert await api.register("s", spaced) == (200, {"id": 1})
    other_order = {"name": "R", "fields": [{"type": "int", "name": "a"}], "type": "record"}
    assert await api.register("s", other_order) == (200, {"id": 1})
    assert await api.call("GET", "/subjects/s/versions") == (200, [1])
    assert await api.register("t", record_schema("a")) == (200, {"id": 1})
    assert await api.call("GET", "/schemas/ids/1/subjects") == (200, ["s", "t"])
    assert await api.register("t", record_schema(b=1)) == (200, {"id": 2})


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/schemas/ids/9", 404, 40403),
        ("GET", "/schemas/ids/x", 404, 40403),
        ("GET", "/subjects/none/versions", 404, 40401),
        ("GET", "/subjects/none/versions/1", 404, 40401),
        ("GET", "/subjects/s/versions/7", 404, 40402),
        ("GET", "/subjects/s/versions/0", 422, 42202),
        ("GET", "/subjects/s/versions/x", 422, 42202),
        ("GET", "/subjects/s/versions/99999999999999999999", 422, 42202),
        ("DELETE", "/subjects/none", 404, 40401),
        ("DELETE", "/subjects/s/versions/7", 404, 40402),
        ("DELETE", "/subjects/s?permanent=true", 404, 40405),
        ("DELETE", "/subjects/s/versions/1?permanent=true", 404, 40407),
        ("GET", "/config/s", 404, 40408),
        ("GET", "/mode/s", 404, 40409),
        ("DELETE", "/config/s", 404, 40401),
        ("DELETE", "/mode/s", 404, 40401),
        ("GET", "/nothing", 404, 404),
        ("GET", "/schemas/ids", 404, 404),
        ("PATCH", "/subjects", 405, 405),
        ("GET", "/subjects/s/versions?limit=x", 422, 422),
        ("GET", "/schemas/ids/1?format=unknown", 400, 400),
    ],
)
async def test_what_does_not_exist_has_confluents_codes(
    api: Api, method: str, path: str, status: int, code: int
) -> None:
    await api.register("s", INT)
    found_status, answer = await api.call(method, path)
    assert (found_status, answer["error_code"]) == (status, code)
    assert answer["message"]


async def test_a_lookup_tells_an_unknown_subject_from_an_unknown_schema(api: Api) -> None:
    assert (await api.call("POST", "/subjects/s", {"schema": INT}))[1]["error_code"] == 40401
    await api.register("s", INT)
    assert (await api.call("POST", "/subjects/s", {"schema": '"long"'}))[1]["error_code"] == 40403


async def test_an_incompatible_schema_is_refused_and_changes_nothing(api: Api) -> None:
    await api.register("s", record_schema("a"))
    before = list(api.topic.records)
    status, answer = await api.register("s", record_schema("a", "b"))
    assert (status, answer["error_code"]) == (409, 409)
    assert "the field /b is missing, and has no default" in answer["message"]
    assert api.topic.records == before


async def test_compatibility_checks(api: Api) -> None:
    await api.register("s", record_schema("a"))
    await api.register("s", record_schema("a", b=1))
    wrong, right = {"schema": record_schema("a", "c")}, {"schema": record_schema("a", c=1)}
    path = "/compatibility/subjects/s/versions"
    assert await api.call("POST", f"{path}/latest", right) == (200, {"is_compatible": True})
    assert await api.call("POST", f"{path}/latest", wrong) == (200, {"is_compatible": False})
    assert await api.call("POST", path, right) == (200, {"is_compatible": True})
    status, answer = await api.call("POST", f"{path}/1?verbose=true", wrong)
    assert (status, answer["is_compatible"], len(answer["messages"])) == (200, False, 1)
    assert (await api.call("POST", f"{path}/9", right))[1]["error_code"] == 40402
    assert (await api.call("POST", "/compatibility/subjects/none/versions/1", right))[1]["error_code"] == 40402
    for new in ("/compatibility/subjects/none/versions", "/compatibility/subjects/none/versions/latest"):
        assert await api.call("POST", new, right) == (200, {"is_compatible": True})
        assert (await api.call("POST", new, {"schema": "{"}))[1]["error_code"] == 42201
        status, answer = await api.call("POST", f"{new}?verbose=true", {"schema": "{"})
        assert (status, answer["is_compatible"], len(answer["messages"])) == (200, False, 1)


async def test_soft_deleted_versions_are_hidden_and_can_be_shown(api: Api) -> None:
    await api.register("s", record_schema("a"))
    await api.register("s", record_schema("a", b=1))
    assert await api.call("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert await api.call("GET", "/subjects/s/versions") == (200, [2])
    assert await api.call("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert await api.call("GET", "/subjects/s/versions?deletedOnly=true") == (200, [1])
    assert await api.call("GET", "/subjects/s/versions?deletedAsNegative=true") == (200, [-1, 2])
    assert (await api.call("GET", "/subjects/s/versions/1"))[1]["error_code"] == 40402
    assert (await api.call("GET", "/subjects/s/versions/1?deleted=true"))[0] == 200
    assert (await api.call("GET", "/schemas/ids/1"))[0] == 200
    assert (await api.call("DELETE", "/subjects/s/versions/1"))[1]["error_code"] == 40406
    assert await api.call("DELETE", "/subjects/s/versions/1?permanent=true") == (200, 1)
    assert (await api.call("GET", "/schemas/ids/1"))[1]["error_code"] == 40403
    assert await api.call("DELETE", "/subjects/s") == (200, [2])
    assert (await api.call("DELETE", "/subjects/s"))[1]["error_code"] == 40404
    assert await api.call("GET", "/subjects") == (200, [])
    assert await api.call("GET", "/subjects?deleted=true") == (200, ["s"])
    assert await api.call("GET", "/subjects?deletedOnly=true") == (200, ["s"])
    assert await api.call("DELETE", "/subjects/s?permanent=true") == (200, [2])
    assert await api.call("GET", "/subjects?deleted=true") == (200, [])


async def test_a_soft_deleted_schema_comes_back_with_its_id_as_a_new_version(api: Api) -> None:
    await api.register("s", INT)
    await api.call("DELETE", "/subjects/s")
    assert await api.register("s", INT) == (200, {"id": 1})
    assert await api.call("GET", "/subjects/s/versions") == (200, [2])


async def test_an_id_is_not_used_again_even_after_compaction_and_a_restart(api: Api) -> None:
    await api.register("s", INT)
    await api.register("t", '"string"')
    await api.call("DELETE", "/subjects/t")
    await api.call("DELETE", "/subjects/t?permanent=true")
    restarted = Api(api.topic.compact())
    await restarted.topic.catch_up()
    assert await restarted.register("u", '"bytes"') == (200, {"id": 3})


async def test_pages_and_prefixes(api: Api) -> None:
    for name in ("a1", "a2", "b1"):
        await api.register(name, INT)
    assert await api.call("GET", "/subjects?subjectPrefix=a") == (200, ["a1", "a2"])
    assert await api.call("GET", "/subjects?offset=1&limit=1") == (200, ["a2"])
    assert [each["subject"] for each in (await api.call("GET", "/schemas?subjectPrefix=b"))[1]] == ["b1"]


async def test_contexts_have_their_own_ids(api: Api) -> None:
    await api.register("s", INT)
    assert await api.register(":.other:s", '"string"') == (200, {"id": 1})
    assert await api.call("GET", "/contexts") == (200, [".", ".other"])
    assert await api.call("GET", "/schemas/ids/1?subject=:.other:") == (
        200,
        with_guid('"string"', subject=":.other:s", version=1),
    )
    assert await api.call("GET", "/schemas/ids/1") == (200, with_guid(INT))
    assert await api.call("GET", "/subjects") == (200, [":.other:s", "s"])
    assert await api.call("GET", "/contexts/.other/subjects") == (200, [":.other:s"])
    assert (await api.call("GET", "/contexts/.other/subjects/s/versions/1"))[1]["subject"] == ":.other:s"
    assert await api.call("GET", "/contexts/.other/schemas/ids/1") == (200, with_guid('"string"'))


async def test_a_subject_may_contain_a_slash(api: Api) -> None:
    await api.register("dir/file.proto", INT)
    assert await api.call("GET", "/subjects/dir%2Ffile.proto/versions") == (200, [1])


async def test_metadata_and_rules_are_kept_and_returned(api: Api) -> None:
    metadata = {"properties": {"owner": "us"}}
    await api.register("s", INT, metadata=metadata)
    status, answer = await api.call("GET", "/subjects/s/metadata?key=owner&value=us")
    assert (status, answer["metadata"]) == (200, metadata)
    assert (await api.call("GET", "/subjects/s/metadata?key=owner&value=them"))[1]["error_code"] == 40403


async def test_the_latest_version_with_several_properties(api: Api) -> None:
    for number, (a, b) in enumerate([("1", "2"), ("9", "2"), ("1", "3")], start=1):
        await api.register("s", INT, metadata={"properties": {"a": a, "b": b}})
        path = f"/subjects/s/metadata?key=a&value={a}&key=b&value={b}"
        assert (await api.call("GET", path))[1]["version"] == number
    assert (await api.call("GET", "/subjects/s/metadata?key=a&value=1&key=b&value=2"))[1]["version"] == 1
    assert (await api.call("GET", "/subjects/s/metadata?key=a&value=9&key=b&value=3"))[1]["error_code"] == 40403


async def test_a_subject_whose_version_refers_to_an_older_one_can_be_deleted(api: Api) -> None:
    await api.register("s", {"type": "record", "name": "P", "fields": []})
    await api.call("PUT", "/config/s", {"compatibility": "NONE"})
    reference = {"name": "P", "subject": "s", "version": 1}
    assert (await api.register("s", {"type": "array", "items": "P"}, references=[reference]))[0] == 200
    assert (await api.call("DELETE", "/subjects/s/versions/1"))[1]["error_code"] == 42206
    assert await api.call("DELETE", "/subjects/s") == (200, [1, 2])
    assert await api.call("DELETE", "/subjects/s?permanent=true") == (200, [1, 2])
