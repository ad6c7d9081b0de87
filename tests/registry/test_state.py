"""Checks the state and the records of ``_schemas``, with records as Confluent's registry and Karapace write them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api_harness import Api, record_schema, with_guid

from headrace.registry.records import Key, UnreadableRecord, decode_key, encode_key
from headrace.registry.state import RegistryState


def apply(state: RegistryState, key: Any, value: Any) -> None:
    state.apply(json.dumps(key).encode(), None if value is None else json.dumps(value).encode())


def test_keys_have_the_bytes_of_confluents_registry() -> None:
    assert encode_key(Key("SCHEMA", "s", 1)) == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    assert encode_key(Key("CONFIG")) == b'{"keytype":"CONFIG","subject":null,"magic":0}'
    assert encode_key(Key("MODE", "s")) == b'{"keytype":"MODE","subject":"s","magic":0}'
    assert encode_key(Key("DELETE_SUBJECT", "s")) == b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'
    assert encode_key(Key("NOOP")) == b'{"keytype":"NOOP","magic":0}'
    assert decode_key(b'{"magic":1, "version":1, "subject":"s", "keytype":"SCHEMA"}') == Key("SCHEMA", "s", 1)


@pytest.mark.parametrize(
    "key",
    [None, b"", b"x", b"[]", b'{"keytype":5}', b'{"keytype":"SCHEMA"}', b"\xff", b"[" * 100_000,
     b'{"keytype":"SCHEMA","subject":"s","version":"1"}'],
)  # fmt: skip
def test_an_unreadable_key_is_passed_over(key: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode_key(key)
    state = RegistryState()
    state.apply(key, b"{}")
    assert list(state.subjects()) == []


@pytest.mark.parametrize(
    "value",
    [{}, {"id": 1}, {"id": "1", "schema": '"int"'}, {"id": True, "schema": '"int"'}, {"id": -1, "schema": '"int"'},
     {"id": 1, "schema": '"int"', "schemaType": "XML"}, [], 5],
)  # fmt: skip
def test_an_unreadable_value_changes_nothing(value: Any) -> None:
    state = RegistryState()
    apply(state, {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}, value)
    assert list(state.subjects()) == []


async def test_a_topic_of_confluents_registry_is_readable(api: Api) -> None:
    first = {"subject": "a", "version": 1, "id": 100001, "schema": '"string"', "deleted": False}
    second = {**first, "version": 2, "id": 100002, "schema": '"bytes"', "md5": "x", "guid": "y", "ts": 5}
    apply(api.state, {"keytype": "NOOP", "magic": 0}, None)
    apply(api.state, {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}, first)
    apply(api.state, {"keytype": "SCHEMA", "subject": "a", "version": 2, "magic": 1}, second)
    proto = {"subject": "p", "version": 1, "id": 100003, "schemaType": "PROTOBUF", "references": [],
             "schema": 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n}\n', "deleted": False}  # fmt: skip
    apply(api.state, {"keytype": "SCHEMA", "subject": "p", "version": 1, "magic": 1}, proto)
    apply(api.state, {"keytype": "CONFIG", "subject": "a", "magic": 0}, {"compatibilityLevel": "NONE"})
    apply(api.state, {"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"})
    apply(api.state, {"keytype": "MODE", "subject": None, "magic": 0}, {"mode": "READWRITE"})
    apply(api.state, {"keytype": "CONTEXT", "tenant": "default", "context": ".", "magic": 0}, {"context": "."})
    assert await api.call("GET", "/subjects/a/versions") == (200, [1, 2])
    assert await api.call("GET", "/schemas/ids/100002") == (200, with_guid('"bytes"'))
    assert await api.call("GET", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert await api.register("a", '"int"') == (200, {"id": 100004})
    same = 'syntax = "proto3"; message M { int32 a = 1; }'
    assert await api.register("p", same, schemaType="PROTOBUF") == (200, {"id": 100003})
    apply(api.state, {"keytype": "DELETE_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a", "version": 2})
    assert await api.call("GET", "/subjects/a/versions") == (200, [3])
    apply(api.state, {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}, None)
    assert await api.call("GET", "/subjects/a/versions?deleted=true") == (200, [2, 3])
    apply(api.state, {"keytype": "CLEAR_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a"})
    assert await api.call("GET", "/subjects/a/versions?deleted=true") == (200, [3])


async def test_replayed_and_compacted_records_give_the_same_state(api: Api) -> None:
    await api.register("s", record_schema("a"))
    await api.register("s", record_schema("a", b=1))
    await api.register(":.c:s", record_schema("a"))
    await api.call("PUT", "/config/s", {"compatibility": "FULL"})
    await api.call("DELETE", "/subjects/s/versions/1")
    paths = ["/subjects?deleted=true", "/schemas?deleted=true", "/subjects/s/versions", "/config/s", "/contexts"]
    expected = [await api.call("GET", path) for path in paths]
    for records in (list(api.topic.records), api.topic.compact()):
        again = Api(records)
        await again.topic.catch_up()
        assert [await again.call("GET", path) for path in paths] == expected


async def test_a_registry_finds_what_another_one_has_acknowledged(api: Api) -> None:
    follower = Api(api.topic.records, leader=api)
    assert await api.register("s", '"int"') == (200, {"id": 1})
    assert await follower.call("GET", "/schemas/ids/1") == (200, with_guid('"int"'))
    assert await follower.register("t", '"long"') == (200, {"id": 2})
    assert await follower.call("GET", "/subjects/t/versions") == (200, [1])
    assert (await follower.call("POST", "/subjects/t/versions", b"{"))[0] == 400


async def test_a_forwarded_request_is_not_forwarded_again(api: Api) -> None:
    follower = Api(api.topic.records, leader=api)
    status, answer = await follower.call("PUT", "/config", {"compatibility": "FULL"}, **{"x-forward": "false"})
    assert (status, answer["error_code"]) == (500, 50004)


async def test_reads_go_on_without_a_broker_and_writes_fail(api: Api) -> None:
    await api.register("s", '"int"')
    api.topic.is_away = True
    assert (await api.call("GET", "/schemas/ids/1"))[0] == 200
    assert await api.call("POST", "/subjects/s", {"schema": '"int"'}) == (
        200,
        with_guid('"int"', subject="s", version=1, id=1),
    )
    # Another registry may have given out this id, so "not found" would be a guess.
    assert (await api.call("GET", "/schemas/ids/2"))[1]["error_code"] == 50001
    assert (await api.register("s", '"long"'))[1]["error_code"] == 50001
    api.topic.is_away = False
    assert await api.register("s", '"long"') == (200, {"id": 2})


async def test_a_version_whose_reference_is_gone_does_not_stop_its_subject(api: Api) -> None:
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    references = [{"name": "n.Gone", "subject": "gone", "version": 1}]
    apply(api.state, key, {"subject": "s", "version": 1, "id": 1, "schema": '"n.Gone"', "references": references})
    proto = {"id": 2, "schemaType": "PROTOBUF", "schema": 'import "gone";', "references": references}
    apply(api.state, {**key, "subject": "p"}, proto)
    assert (await api.call("POST", "/subjects/s", {"schema": '"int"'}))[1]["error_code"] == 40403
    status, answer = await api.register("s", '"int"')
    assert status == 409
    assert "version 1 cannot be compared" in answer["message"]
    assert (await api.call("GET", "/schemas/ids/2?format=serialized"))[1]["error_code"] == 42201
    assert (await api.call("GET", "/schemas/ids/2"))[0] == 200


async def test_an_unknown_level_of_another_registry_counts_as_the_default(api: Api) -> None:
    await api.register("s", '"int"')
    apply(api.state, {"keytype": "CONFIG", "subject": "s", "magic": 0}, {"compatibilityLevel": "BETTER"})
    assert (await api.register("s", '"string"'))[0] == 409
