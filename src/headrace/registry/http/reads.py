"""Answers requests that change nothing: one function per route. Every registry answers them from its own state."""

from __future__ import annotations

import json
from importlib.metadata import version as package_version
from typing import Any

from headrace.registry.errors import bad_request, no_subject_config, no_subject_mode, schema_not_found
from headrace.registry.http.calls import Call
from headrace.registry.names import context_of, with_context
from headrace.registry.queries import (
    live_versions,
    one_version,
    page,
    parsed_version,
    referrer_ids,
    schemas,
    subjects,
    version_fields,
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
    return call.state.contexts()


async def version_of_registry(_: Call) -> Any:
    return {"version": f"headrace-{package_version('headrace')}", "commitId": ""}


# -- ids


def _of_id(call: Call) -> list[Version]:
    text = call.parts["id"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise schema_not_found()
    subject = call.query.get("subject", "")
    context = context_of(with_context(call.context, subject))
    return versions_of_id(call.state, context, int(text))


async def schema_of_id(call: Call) -> Any:
    found = _of_id(call)[0]
    answer = await call.registry.schema_fields(found, _form(call))
    if call.flag("fetchMaxId"):
        answer["maxId"] = call.state.max_id(context_of(found.subject))
    return answer


async def text_of_id(call: Call) -> Any:
    return Raw((await call.registry.schema_fields(_of_id(call)[0], _form(call)))["schema"])


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
    return _page(call, [each.version for each in found if each.is_deleted or not only_deleted])


def _version(call: Call) -> Version:
    number = parsed_version(call.parts["version"])
    return one_version(call.state, call.subject, number, with_deleted=call.flag("deleted"))


async def version(call: Call) -> Any:
    found = _version(call)
    return {**version_fields(found), **await call.registry.schema_fields(found, _form(call))}


async def text_of_version(call: Call) -> Any:
    return Raw((await call.registry.schema_fields(_version(call), _form(call)))["schema"])


async def referenced_by(call: Call) -> Any:
    return _page(call, referrer_ids(call.state, _version(call), with_deleted=call.flag("deleted")))


async def latest_with_metadata(call: Call) -> Any:
    """The newest version whose metadata has a property; ``key`` and ``value`` name it."""
    name, wanted = call.query.get("key", ""), call.query.get("value", "")
    for found in reversed(live_versions(call.state, call.subject, with_deleted=call.flag("deleted"))):
        metadata = json.loads(found.schema.metadata or "{}")
        properties = metadata.get("properties") if isinstance(metadata, dict) else None
        if not name or (isinstance(properties, dict) and properties.get(name) == wanted):
            return {**version_fields(found), **await call.registry.schema_fields(found, _form(call))}
    raise schema_not_found()


async def lookup(call: Call) -> Any:
    found = await call.registry.lookup(
        call.subject, call.json(), normalize=call.flag("normalize"), deleted=call.flag("deleted")
    )
    return {**version_fields(found), **await call.registry.schema_fields(found, _form(call))}


# -- compatibility


async def check(call: Call) -> Any:
    number = parsed_version(call.parts["version"])
    problems = await call.registry.check(call.subject, number, call.json(), normalize=call.flag("normalize"))
    return _verdict(call, problems)


async def check_all(call: Call) -> Any:
    problems = await call.registry.check_all(call.subject, call.json(), normalize=call.flag("normalize"))
    return _verdict(call, problems)


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
