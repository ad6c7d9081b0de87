"""Answers requests that change nothing: one function per route. Every registry answers them from its own state."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version as package_version
from typing import Any

from headrace.registry.errors import (
    INVALID_SCHEMA,
    NotFound,
    RegistryError,
    bad_request,
    no_subject_config,
    no_subject_mode,
    schema_not_found,
)
from headrace.registry.http.calls import Call
from headrace.registry.names import context_of, local_name, with_context
from headrace.registry.queries import (
    aliased,
    contexts_of_guid,
    live_versions,
    one_version,
    page,
    parsed_version,
    referrer_ids,
    same_name_elsewhere,
    schemas,
    subjects,
    version_fields,
    version_with_id,
    versions_of_id,
)
from headrace.registry.schemas import TYPES
from headrace.registry.state import DEFAULT_LEVEL, Version


class Raw(str):
    """A text that is the whole answer."""


async def root(_: Call) -> Any:
    return {}


async def types(_: Call) -> Any:
    return list(TYPES)


async def contexts(call: Call) -> Any:
    prefix = call.query.get("contextPrefix", "")
    return _page(call, [each for each in call.state.contexts() if each.startswith(prefix)])


async def clusters(call: Call) -> Any:
    return {"id": "", "scope": {"path": [], "clusters": call.registry.cluster_names()}}


async def version_of_registry(_: Call) -> Any:
    return {"version": f"headrace-{package_version('headrace')}", "commitId": ""}


# -- ids


def _id(call: Call) -> int:
    text = call.parts["id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise schema_not_found()
    return int(text)


def _subject_of_id(call: Call) -> str:
    """The subject, or the context, that a request for an id names."""
    name = with_context(call.context, call.query.get("subject", ""))
    return aliased(call.state, name) if local_name(name) else name


def _of_id(call: Call) -> list[Version]:
    return versions_of_id(call.state, context_of(_subject_of_id(call)), _id(call))


def _one_of_id(call: Call) -> Version:
    return version_with_id(call.state, _subject_of_id(call), _id(call))


async def schema_of_id(call: Call) -> Any:
    found = _one_of_id(call)
    answer = await _schema_fields(call, found)
    if call.query.get("subject"):
        answer.update(subject=found.subject, version=found.version)
    if call.flag("fetchMaxId"):
        answer["maxId"] = call.state.max_id(context_of(found.subject))
    return answer


async def _schema_fields(call: Call, found: Version) -> dict[str, object]:
    return {"guid": found.schema.guid, **await call.registry.schema_fields(found, _form(call))}


async def schema_of_guid(call: Call) -> Any:
    context, schema_id = contexts_of_guid(call.state, call.parts["guid"])[0]
    return await _schema_fields(call, versions_of_id(call.state, context, schema_id)[0])


async def ids_of_guid(call: Call) -> Any:
    found = contexts_of_guid(call.state, call.parts["guid"])
    return [{"context": context, "id": schema_id} for context, schema_id in found]


async def text_of_id(call: Call) -> Any:
    return Raw((await call.registry.schema_fields(_one_of_id(call), _form(call)))["schema"])


async def subjects_of_id(call: Call) -> Any:
    found = [each for each in _of_id(call) if call.flag("deleted") or not each.is_deleted]
    return _page(call, sorted({each.subject for each in found}))


async def versions_with_id(call: Call) -> Any:
    found = [each for each in _of_id(call) if call.flag("deleted") or not each.is_deleted]
    return _page(call, [{"subject": each.subject, "version": each.version} for each in found])


async def all_schemas(call: Call) -> Any:
    found = schemas(
        call.state,
        with_context(call.context, call.query.get("subjectPrefix", "")),
        with_deleted=call.flag("deleted"),
        only_latest=call.flag("latestOnly"),
    )
    return [version_fields(each) for each in _page(call, found)]


# -- subjects


async def all_subjects(call: Call) -> Any:
    found = subjects(
        call.state,
        with_context(call.context, call.query.get("subjectPrefix", "")),
        with_deleted=call.flag("deleted"),
        only_deleted=call.flag("deletedOnly", "deleted_only"),
    )
    return _page(call, found)


async def versions(call: Call) -> Any:
    only_deleted = call.flag("deletedOnly", "deleted_only")
    found = live_versions(call.state, call.subject, with_deleted=only_deleted or call.flag("deleted"))
    if call.flag("deletedAsNegative"):
        found = call.state.versions(call.subject, with_deleted=True)
        return _page(call, [-each.version if each.is_deleted else each.version for each in found])
    return _page(call, [each.version for each in found if each.is_deleted or not only_deleted])


async def _in_contexts(call: Call, find: Callable[[str], Awaitable[Version]]) -> Version:
    """Finds the version of a subject, or else of this name in another context if the request names no context."""
    try:
        return await find(call.subject)
    except NotFound:
        if not same_name_elsewhere(call.state, call.subject):
            raise
    await call.registry.catch_up()
    for name in (call.subject, *same_name_elsewhere(call.state, call.subject)):
        with suppress(RegistryError):
            return await find(name)
    return await find(call.subject)


async def _version(call: Call) -> Version:
    number = parsed_version(call.parts["version"])

    async def find(subject: str) -> Version:
        return one_version(call.state, subject, number, with_deleted=call.flag("deleted"))

    return await _in_contexts(call, find)


async def version(call: Call) -> Any:
    found = await _version(call)
    return {**version_fields(found), **await call.registry.schema_fields(found, _form(call))}


async def text_of_version(call: Call) -> Any:
    return Raw((await call.registry.schema_fields(await _version(call), _form(call)))["schema"])


async def referenced_by(call: Call) -> Any:
    return _page(call, referrer_ids(call.state, await _version(call), with_deleted=call.flag("deleted")))


async def latest_with_metadata(call: Call) -> Any:
    """The newest version whose metadata has some properties: each ``key`` of the query, with its ``value``."""
    wanted = dict(zip(call.values("key"), call.values("value"), strict=False))
    wanted.pop("", None)
    for found in reversed(live_versions(call.state, call.subject, with_deleted=call.flag("deleted"))):
        metadata = json.loads(found.schema.metadata or "{}")
        properties = metadata.get("properties") if isinstance(metadata, dict) else None
        if not wanted or (isinstance(properties, dict) and wanted.items() <= properties.items()):
            return {**version_fields(found), **await call.registry.schema_fields(found, _form(call))}
    raise schema_not_found()


async def lookup(call: Call) -> Any:
    async def find(subject: str) -> Version:
        return await call.registry.lookup(
            subject, call.json(), normalize=call.flag("normalize"), deleted=call.flag("deleted")
        )

    found = await _in_contexts(call, find)
    return {**version_fields(found), **await call.registry.schema_fields(found, _form(call))}


async def registered(call: Call) -> Any:
    """The answer to a registration of what exists already; None if the leader must decide."""
    return await call.registry.registered(call.subject, call.json(), normalize=call.flag("normalize"))


# -- compatibility


async def check(call: Call) -> Any:
    number = parsed_version(call.parts["version"])
    work = call.registry.check(call.subject, number, call.json(), normalize=call.flag("normalize"))
    return _verdict(call, await _problems(call, work))


async def check_all(call: Call) -> Any:
    work = call.registry.check_all(call.subject, call.json(), normalize=call.flag("normalize"))
    return _verdict(call, await _problems(call, work))


async def _problems(call: Call, work: Awaitable[list[str]]) -> list[str]:
    """The problems of a comparison. That the schema is not valid is one, if the client wants to see the problems."""
    try:
        return await work
    except RegistryError as error:
        if error.code != INVALID_SCHEMA or not call.flag("verbose"):
            raise
        return [error.message]


def _verdict(call: Call, problems: list[str]) -> dict[str, object]:
    answer: dict[str, object] = {"is_compatible": not problems}
    return {**answer, "messages": problems} if call.flag("verbose") else answer


# -- settings and modes


async def config(call: Call) -> Any:
    scope = call.scope
    found = dict(call.state.config(scope) or {})
    if "compatibilityLevel" not in found:
        if scope is not None and not call.flag("defaultToGlobal") and not found:
            raise no_subject_config(scope)
        found["compatibilityLevel"] = call.state.effective_config(scope, "compatibilityLevel", DEFAULT_LEVEL)
    return found


async def mode(call: Call) -> Any:
    scope = call.scope
    found = call.state.mode(scope)
    if found is None:
        if scope is not None and not call.flag("defaultToGlobal"):
            raise no_subject_mode(scope)
        found = call.state.effective_mode(scope)
    return {"mode": found}


def _page(call: Call, items: list[Any]) -> list[Any]:
    return page(items, call.number("offset", 0), call.number("limit", -1))


def _form(call: Call) -> str:
    form = call.query.get("format", "")
    if form not in ("", "serialized", "resolved", "default"):
        raise bad_request(f"format={form[:40]} is not supported; use serialized, or leave it out")
    return "serialized" if form == "serialized" else ""
