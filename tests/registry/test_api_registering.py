"""Checks what registering answers: schemas that exist already, metadata and rules that are taken over, and GUIDs."""

from __future__ import annotations

import json
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
from api_harness import Api, record_schema

INT = '"int"'
METADATA = {"properties": {"owner": "us", "area": "x"}, "tags": {"b": ["2", "1"], "a": ["3"]}, "sensitive": ["owner"]}
RULE = {"name": "check", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}
RULES = {"domainRules": [RULE]}


def guid(*parts: bytes) -> str:
    return str(UUID(bytes=md5(b"".join(parts)).digest()))


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE", "IMPORT", "READWRITE"])
async def test_a_schema_that_exists_is_answered_in_every_mode(api: Api, mode: str) -> None:
    await api.register("s", record_schema("a"))
    await api.call("PUT", "/mode?force=true", {"mode": mode})
    written = list(api.topic.records)
    assert await api.register("s", record_schema("a")) == (200, {"id": 1})
    assert await api.register("s", record_schema("a"), id=1) == (200, {"id": 1})
    assert await api.register("s", record_schema("a"), id=1, version=1) == (200, {"id": 1})
    assert api.topic.records == written


@pytest.mark.parametrize("mode", ["READONLY", "READWRITE"])
async def test_another_id_for_a_schema_that_exists_is_refused(api: Api, mode: str) -> None:
    await api.register("s", INT)
    await api.call("PUT", "/mode", {"mode": mode})
    assert (await api.register("s", INT, id=2))[1]["error_code"] == 42205


async def test_a_schema_that_was_deleted_does_not_exist_in_a_read_only_mode(api: Api) -> None:
    await api.register("s", INT)
    await api.call("DELETE", "/subjects/s")
    await api.call("PUT", "/mode", {"mode": "READONLY"})
    assert (await api.register("s", INT))[1]["error_code"] == 42205


async def test_a_registry_without_its_leader_answers_for_a_schema_that_exists(api: Api) -> None:
    await api.register("s", INT)
    api.topic.is_away = True
    assert await api.register("s", INT) == (200, {"id": 1})


async def test_the_answer_has_the_version_the_guid_and_the_text(api: Api) -> None:
    expected = {"id": 1, "version": 1, "guid": guid(INT.encode()), "schema": INT}
    for _ in range(2):
        assert await api.call("POST", "/subjects/s/versions", {"schema": INT}) == (200, expected)
    status, answer = await api.call("POST", "/subjects/j/versions", {"schema": "true", "schemaType": "JSON"})
    assert (status, answer["id"], answer["schemaType"]) == (200, 2, "JSON")


async def test_metadata_and_rules_of_the_latest_version_are_taken_over(api: Api) -> None:
    await api.register("s", record_schema("a"), metadata=METADATA, ruleSet=RULES)
    assert await api.register("s", record_schema("a")) == (200, {"id": 1})
    assert (await api.call("POST", "/subjects/s", {"schema": record_schema("a")}))[1]["version"] == 1
    assert await api.register("s", record_schema("a", b=1)) == (200, {"id": 2})
    latest = (await api.call("GET", "/subjects/s/versions/latest"))[1]
    assert (latest["metadata"], latest["ruleSet"]) == (METADATA, RULES)
    assert await api.call("GET", "/subjects/s/versions") == (200, [1, 2])


async def test_empty_metadata_is_not_replaced(api: Api) -> None:
    await api.register("s", INT, metadata=METADATA)
    assert await api.register("s", INT, metadata={}) == (200, {"id": 2})
    assert "metadata" not in (await api.call("GET", "/subjects/s/versions/latest"))[1]
    assert await api.register("s", INT) == (200, {"id": 2})


async def test_an_older_version_without_metadata_is_found(api: Api) -> None:
    await api.register("s", record_schema("a"))
    await api.register("s", record_schema("a", b=1), metadata=METADATA)
    assert await api.register("s", record_schema("a")) == (200, {"id": 1})


def rules(member: str = "domainRules", **changes: Any) -> dict[str, Any]:
    rule = {name: value for name, value in {**RULE, **changes}.items() if value is not None}
    return {member: [rule]}


@pytest.mark.parametrize(
    "rule_set",
    [rules(name=None), rules(name=""), rules(name="bad name!"), rules(name="1x"), rules(name="x" * 257),
     rules(type=None), rules(kind="X"), rules(mode="X"), rules(mode="UPGRADE"), rules("migrationRules"),
     rules("encodingRules", mode="UPDOWN"), rules(onFailure="DLQ,NONE"), {"domainRules": [RULE, RULE]},
     {"domainRules": [RULE], "encodingRules": [RULE]}, {"domainRules": RULE}, {"domainRules": ["x"]}],
    ids=str,
)  # fmt: skip
async def test_a_wrong_rule_set_is_refused(api: Api, rule_set: Any) -> None:
    status, answer = await api.register("s", INT, ruleSet=rule_set)
    assert (status, answer["error_code"]) == (422, 42210)
    assert api.topic.records == []


@pytest.mark.parametrize(
    "rule_set", [RULES, rules("migrationRules", mode="UPGRADE"), rules("encodingRules"), rules(kind=None, mode=None),
                 rules(mode="WRITEREAD", onFailure="DLQ,NONE"), {"domainRules": None}],
)  # fmt: skip
async def test_a_rule_set_is_accepted(api: Api, rule_set: Any) -> None:
    assert (await api.register("s", INT, ruleSet=rule_set))[0] == 200


async def test_the_guid_is_the_md5_of_text_references_metadata_and_rules(api: Api) -> None:
    await api.register("part", {"type": "record", "name": "P", "fields": []})
    reference = {"name": "P", "subject": "part", "version": 1}
    whole = '{"type":"array","items":"P"}'
    await api.register("whole", whole, references=[reference], metadata=METADATA, ruleSet=RULES)
    expected = guid(
        whole.encode(),
        b"Ppart\x00\x00\x00\x01",
        b"\x01a3b12",
        b"areaxownerus",
        b"owner",
        b"\x01checkCONDITIONWRITECELtrue",
    )
    for path in ("/subjects/whole/versions/1", "/schemas/ids/2"):
        assert (await api.call("GET", path))[1]["guid"] == expected
    status, answer = await api.call("GET", f"/schemas/guids/{expected}")
    assert (status, answer["schema"], answer["references"]) == (200, whole, [reference])
    assert await api.call("GET", f"/schemas/guids/{expected}/ids") == (200, [{"context": ".", "id": 2}])


async def test_a_guid_is_found_in_every_context(api: Api) -> None:
    found = guid(INT.encode())
    for path in (f"/schemas/guids/{found}", f"/schemas/guids/{found}/ids", "/schemas/guids/x"):
        assert (await api.call("GET", path))[1]["error_code"] == 40403
    await api.register(":.c:t", '"long"')
    await api.register(":.c:s", INT)
    assert (await api.call("GET", f"/schemas/guids/{found}"))[1] == {"guid": found, "schema": INT}
    await api.register("s", INT)
    expected = [{"context": ".", "id": 1}, {"context": ".c", "id": 2}]
    assert await api.call("GET", f"/schemas/guids/{found.upper()}/ids") == (200, expected)
    for query in ("", "?permanent=true"):
        await api.call("DELETE", f"/subjects/s{query}")
    assert await api.call("GET", f"/schemas/guids/{found}/ids") == (200, expected[1:])


async def test_a_record_with_metadata_of_any_shape_has_a_guid(api: Api) -> None:
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    odd = {
        "metadata": {"tags": [1], "properties": {"a": 5}, "sensitive": {}},
        "ruleSet": {"domainRules": [7, {"tags": 1}]},
    }
    value = {"subject": "s", "version": 1, "id": 1, "schema": INT, **odd}
    api.state.apply(json.dumps(key).encode(), json.dumps(value).encode())
    assert UUID((await api.call("GET", "/schemas/ids/1"))[1]["guid"])
