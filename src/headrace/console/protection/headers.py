"""Adds the headers that make browsers protect the console's pages. Every answer has them, also errors and files.

The policy (CSP) lets pages run only scripts and styles that the console serves as files. So a script inside a record, a
name or an error message does not run, even if a template forgot to escape it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
#: Not ``no-referrer``: browsers would then send ``Origin: null`` with forms, and the check of the origin would fail.
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
#: Pages show data of the cluster: no cache may keep them. Files say themselves how long they are good.
_NO_STORE = (b"cache-control", b"no-store")


def with_headers(application: Application) -> Application:
    """An ASGI application whose answers have the headers."""

    async def protected(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {bytes(name).lower() for name, _ in given}
                added = [header for header in (*_RAW, _NO_STORE) if header[0] not in names]
                message = {**message, "headers": [*given, *added]}
            await send(message)

        await application(scope, receive, send_with_headers)

    return protected
