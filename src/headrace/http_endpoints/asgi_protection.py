"""Protects HTTP endpoints that uvicorn serves: the check of credentials, and time limits.

The server is uvicorn, with h11 as its parser. uvicorn bounds neither the time of a request nor the size of its head, so
:class:`BoundedProtocol` does: a request, with its body, arrives within 20 seconds, or its connection is closed. So is
the connection of a client that does not read its answer: it takes some bytes every minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.http_endpoints.access import Access
from headrace.peer_log import PeerLog
from headrace.runtime.clock import SystemClock

logger = logging.getLogger(__name__)
_peer_log = PeerLog(logger, SystemClock().monotonic_ms)

MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 1_000
REQUEST_SECONDS = 20.0
STALL_SECONDS = 60.0
HINTS = "give --tls-certificate, --tls-key and --bearer-token-file, or --insecure if the network is trusted"
#: The body of the answer to a request without the right credentials.
UNAUTHORIZED = b'{"error":"wrong or missing credentials","kind":"unauthorized"}'

#: The extension of the scope that ends the connection (``with_abort``).
ABORT = "headrace.abort"

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def with_access(application: Application, access: Access, body: bytes = UNAUTHORIZED) -> Application:
    """An ASGI application that answers 401 to requests without the right credentials. Their bodies are not read."""
    if not access.is_required:
        return application

    async def checked(scope: _Scope, receive: _Receive, send: _Send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if len(given) <= 1 and access.allows(given[0].decode("latin-1") if given else None):
            await application(scope, receive, send)
            return
        client = scope.get("client") or ("unknown",)
        _peer_log.write("rejected request", str(client[0]), "wrong or missing credentials")
        await _answer_unauthorized(access, send, body)

    return checked


async def _answer_unauthorized(access: Access, send: _Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"www-authenticate", challenge.encode()) for challenge in access.challenges()]
    # The body of the request was not read.
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def with_abort(application: Application) -> Application:
    """An ASGI application whose scope can end the connection at once: ``scope["extensions"][ABORT]()``.

    ASGI has no way to end the connection of a client that does not read: what was sent waits in the buffer.
    """

    async def abortable(scope: _Scope, receive: _Receive, send: _Send) -> None:
        transport = getattr(getattr(send, "__self__", None), "transport", None)
        if transport is not None:
            scope.setdefault("extensions", {})[ABORT] = transport.abort
        await application(scope, receive, send)

    return abortable


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn whose requests have to arrive in time, and whose answers have to be read."""

    request_seconds = REQUEST_SECONDS
    stall_seconds = STALL_SECONDS
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        self._expect_request()
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._cancel_stalled()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_stalled()
        self._stalled = self.loop.call_later(self.stall_seconds, self._too_slow)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_stalled()

    def _cancel_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _too_slow(self) -> None:
        host = (self.client or ("unknown",))[0]
        _peer_log.write("closed connection", host, f"it took nothing of its answer for {self.stall_seconds:.0f} s")
        self.transport.abort()

    def _expect_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.request_seconds, self._too_late)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        host = (self.client or ("unknown",))[0]
        _peer_log.write("closed connection", host, "its request did not arrive in time")
        self.transport.abort()
