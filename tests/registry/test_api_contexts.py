"""Checks lookups that name no context, and contexts that are deleted."""

from __future__ import annotations

import pytest
from api_harness import Api, with_guid

INT, LONG = '"int"', '"long"'


async def test_a_subject_of_another_context_is_found_without_its_context(api: Api) -> None:
    await api.register(":.c:only", INT)
    expected = with_guid(INT, subject=":.c:only", version=1, id=1)
    for path in ("/subjects/only/versions/latest", "/subjects/only/versions/1"):
        assert await api.call("GET", path) == (200, expected)
    assert await api.call("POST", "/subjects/only", {"schema": INT}) == (200, expected)
    assert await api.raw("GET", "/subjects/only/versions/1/schema") == (200, INT.encode())


@pytest.mark.parametrize("path", ["/subjects/:.d:only/versions/1", "/contexts/.d/subjects/only/versions/1"])
async def test_a_subject_with_a_context_is_only_looked_up_there(api: Api, path: str) -> None:
    await api.register(":.c:only", INT)
    assert (await api.call("GET", path))[1]["error_code"] == 40401


async def test_the_default_context_comes_first(api: Api) -> None:
    await api.register(":.c:s", INT)
    await api.register("s", LONG)
    assert (await api.call("GET", "/subjects/s/versions/latest"))[1]["subject"] == "s"
    assert (await api.call("POST", "/subjects/s", {"schema": INT}))[1]["subject"] == ":.c:s"
    assert (await api.call("POST", "/subjects/s", {"schema": '"bytes"'}))[1]["error_code"] == 40403


async def test_the_default_context_comes_first_for_a_registry_that_is_behind(api: Api) -> None:
    await api.register(":.c:s", INT)
    follower = Api(api.topic.records, leader=api)
    await follower.topic.catch_up()
    await api.register("s", LONG)
    assert (await follower.call("GET", "/subjects/s/versions/latest"))[1]["subject"] == "s"


async def test_an_id_with_a_subject_is_that_of_the_subject(api: Api) -> None:
    await api.register("s", INT)
    await api.register("t", LONG)
    await api.register(":.c:x", '"bytes"')
    await api.register(":.c:only", '"string"')
    expected = with_guid('"string"', subject=":.c:only", version=1)
    assert await api.call("GET", "/schemas/ids/2?subject=only") == (200, expected)
    assert await api.call("GET", "/schemas/ids/2?subject=:.c:only") == (200, expected)
    assert await api.raw("GET", "/schemas/ids/2/schema?subject=only") == (200, b'"string"')
    assert (await api.call("GET", "/schemas/ids/2?subject=t"))[1]["schema"] == LONG
    assert (await api.call("GET", "/schemas/ids/2?subject=none"))[1]["schema"] == LONG


async def test_only_a_context_without_schemas_is_deleted(api: Api) -> None:
    assert await api.call("DELETE", "/contexts/.none") == (204, None)
    await api.register(":.c:s", INT)
    for path in ("/contexts/.c", "/contexts/:.c:"):
        status, answer = await api.call("DELETE", path)
        assert (status, answer["error_code"]) == (422, 42211)
    for query in ("", "?permanent=true"):
        await api.call("DELETE", f"/subjects/:.c:s{query}")
    assert await api.call("DELETE", "/contexts/.c") == (204, None)
    assert await api.call("GET", "/contexts") == (200, ["."])


async def test_contexts_have_pages_and_a_prefix(api: Api) -> None:
    for name in (".a", ".b", ".ba"):
        await api.register(f":{name}:s", INT)
    assert await api.call("GET", "/contexts?offset=1&limit=1") == (200, [".a"])
    assert await api.call("GET", "/contexts?contextPrefix=.b") == (200, [".b", ".ba"])
