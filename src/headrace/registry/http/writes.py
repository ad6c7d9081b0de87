"""Answers requests that change something: one function per route. Only the leader runs them."""

from __future__ import annotations

from typing import Any

from headrace.registry import changes
from headrace.registry.errors import context_not_empty
from headrace.registry.http.calls import Call
from headrace.registry.names import context_of_path
from headrace.registry.queries import parsed_version

#: The answer of a request that has none: status 204.
NO_CONTENT = object()


async def register(call: Call) -> Any:
    return await call.registry.register(call.subject, call.json(), normalize=call.flag("normalize"))


async def delete_subject(call: Call) -> Any:
    subject, permanent = call.subject, call.flag("permanent")
    return await call.registry.change(lambda state: changes.delete_subject(state, subject, permanent=permanent))


async def delete_version(call: Call) -> Any:
    subject, permanent, number = call.subject, call.flag("permanent"), parsed_version(call.parts["version"])
    return await call.registry.change(lambda state: changes.delete_version(state, subject, number, permanent=permanent))


async def put_config(call: Call) -> Any:
    scope, body = call.scope, call.json()
    return await call.registry.change(lambda state: changes.put_config(state, scope, body))


async def delete_config(call: Call) -> Any:
    scope = call.scope
    return await call.registry.change(lambda state: changes.delete_config(state, scope))


async def put_mode(call: Call) -> Any:
    scope, body, force = call.scope, call.json(), call.flag("force")
    return await call.registry.change(lambda state: changes.put_mode(state, scope, body, force=force))


async def delete_mode(call: Call) -> Any:
    scope, recursive = call.scope, call.flag("recursive")
    return await call.registry.change(lambda state: changes.delete_mode(state, scope, recursive=recursive))


async def delete_context(call: Call) -> Any:
    """A context exists as long as it has schemas, so there is nothing to write."""
    context = context_of_path(call.parts["context"])
    await call.registry.change(lambda _: changes.Change((), None))
    if call.state.has_versions(context):
        raise context_not_empty(context)
    return NO_CONTENT
