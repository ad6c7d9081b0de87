"""Serves the API as an ASGI application.

A request that changes something runs on the leader: another registry forwards it, and answers when it has read the
change itself. The registration of a schema that exists changes nothing, so every registry answers it.

A read that finds nothing may be early: the registry then reads the topic to its end, and looks again. So every registry
finds whatever any registry has acknowledged. If the topic cannot be read, a read that finds nothing is answered with
error 50001 and not with 404, because a client may take 404 as the last word.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from logging import getLogger
from typing import Any, Protocol

from headrace.registry.cluster.forwarding import FORWARD_HEADER, Forwarder
from headrace.registry.cluster.membership import Leader
from headrace.registry.errors import NotFound, RegistryError, no_leader
from headrace.registry.http.calls import Call, Receive, path_segments, query_pairs, read_body
from headrace.registry.http.reads import Raw
from headrace.registry.http.routes import Route, find_route
from headrace.registry.http.writes import NO_CONTENT
from headrace.registry.names import DEFAULT_CONTEXT, context_of_path
from headrace.registry.registry import Registry

logger = getLogger(__name__)

CONTENT_TYPE = b"application/vnd.schemaregistry.v1+json"
UNAUTHORIZED = b'{"error_code":40101,"message":"Wrong or missing credentials"}'
Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Leaders(Protocol):
    """Knows who the leader is."""

    async def leader(self) -> Leader:
        """Waits until there is a leader.

        :raises RegistryError: if there is none in time.
        """


class Application:
    """The API of one registry."""

    def __init__(self, registry: Registry, leaders: Leaders, forwarder: Forwarder) -> None:
        self._registry = registry
        self._leaders = leaders
        self._forwarder = forwarder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        must_close = False
        try:
            status, body = await self._answer(scope, receive)
        except RegistryError as error:
            status, body = error.status, _encoded({"error_code": error.code, "message": error.message})
            must_close = error.status == 413
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            status, body = 500, _encoded({"error_code": 500, "message": "internal error; see the registry's log"})
        headers = [(b"content-type", CONTENT_TYPE)]
        if status != 204:
            headers.append((b"content-length", str(len(body)).encode()))
        if must_close:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        segments = path_segments(raw_path.partition(b"?")[0])
        context = DEFAULT_CONTEXT
        if len(segments) > 2 and segments[0] == "contexts":
            context, segments = context_of_path(segments[1]), segments[2:]
        route, parts = find_route(scope["method"], segments)
        call = Call(self._registry, parts, query_pairs(scope["query_string"]), context=context)
        if scope["method"] in ("POST", "PUT"):
            call.body = await read_body(receive)
        if route.changes:
            return await self._change(route, call, scope, raw_path)
        return 200, _encoded(await self._read(route, call))

    async def _read(self, route: Route, call: Call) -> Any:
        try:
            return await route.handler(call)
        except NotFound:
            await self._registry.catch_up()
            return await route.handler(call)

    async def _change(self, route: Route, call: Call, scope: Scope, raw_path: bytes) -> tuple[int, bytes]:
        if route.known is not None:
            # This registry may not have read everything yet, so an error is the leader's to give.
            with suppress(RegistryError):
                known = await route.known(call)
                if known is not None:
                    return 200, _encoded(known)
        leader = await self._leaders.leader()
        if leader.is_self:
            answer = await route.handler(call)
            return (204, b"") if answer is NO_CONTENT else (200, _encoded(answer))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get(FORWARD_HEADER) == "false":
            raise no_leader("another registry forwarded this request, but this registry is not the leader; try again")
        query: bytes = scope["query_string"]
        target = raw_path.partition(b"?")[0] + (b"?" + query if query else b"")
        forwarded = await self._forwarder.send(
            leader.identity, scope["method"], target.decode("latin-1"), headers, call.body
        )
        with suppress(RegistryError):
            await self._registry.catch_up()
        return forwarded.status, forwarded.body


def _encoded(answer: Any) -> bytes:
    if isinstance(answer, Raw):
        return answer.encode()
    return json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode()
