"""Answers requests for pages: as HTML, as JSON, and as a stream of the part that changes by itself.

A live page opens the stream with its own address, and ``Accept: text/event-stream``. The console then reads the page
again every few seconds, renders the block ``live`` of its template, and sends it if it differs from the last one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.client.errors import HeadraceError
from headrace.console.answers import html_answer, json_answer, page_context
from headrace.console.body import read_query
from headrace.console.fields import read_fields
from headrace.console.pages.page import Page
from headrace.console.problems import ConsoleError, NotFound, TooMany, explain
from headrace.console.protection.sessions import MOST_STREAMS, Session
from headrace.console.rendering import render_live
from headrace.console.request import ConsoleRequest
from headrace.console.services import Services
from headrace.console.visitors import session_of

#: No page takes longer; the clients' own timeouts are shorter.
_LONGEST_SECONDS = 60.0
#: A browser opens the stream again when it ends. So a page that nobody closed does not keep its session for ever.
_STREAM_SECONDS = 600.0
_RETRY_MS = 3_000
#: How long a live page keeps a console that ends.
_TICK_SECONDS = 0.5


class PageAnswers:
    """Answers requests for one page."""

    def __init__(self, services: Services, page: Page) -> None:
        self._services = services
        self._page = page

    async def html(self, request: Request) -> Response:
        session = await session_of(self._services, request)
        asked = self._asked(request, session)
        if self._page.live_seconds and "text/event-stream" in request.headers.get("accept", ""):
            return self._stream(asked)
        return html_answer(request, session, self._page.template, await self._context(asked))

    async def json(self, request: Request) -> Response:
        session = await session_of(self._services, request, is_kept=False)
        return json_answer(await self._read(self._asked(request, session)))

    def _asked(self, request: Request, session: Session) -> ConsoleRequest:
        in_path = {name: _unquoted(value) for name, value in request.path_params.items()}
        return ConsoleRequest(
            read_fields(self._page.fields, {**read_query(request), **in_path}), session, self._services
        )

    async def _read(self, asked: ConsoleRequest) -> Any:
        async with asyncio.timeout(_LONGEST_SECONDS):
            return await self._page.read(asked)

    async def _context(self, asked: ConsoleRequest) -> dict[str, Any]:
        data = await self._read(asked)
        title = self._page.heading(dict(asked.values))
        section = self._page.section or self._page.path
        shared = page_context(self._services, asked.session, title=title, section=section)
        return {**shared, "data": data, "page": self._page, "values": asked.values, "path": self._page.path}

    # -- live pages

    def _stream(self, asked: ConsoleRequest) -> Response:
        if asked.session.streams >= MOST_STREAMS:
            raise TooMany(f"this session has {MOST_STREAMS} live pages open")
        return StreamingResponse(self._events(asked), media_type="text/event-stream")

    async def _events(self, asked: ConsoleRequest) -> AsyncIterator[bytes]:
        asked.session.streams += 1
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode()
            loop = asyncio.get_running_loop()
            end, sent = loop.time() + _STREAM_SECONDS, b""
            while loop.time() < end and not self._has_ended(asked.session):
                event = await self._event(asked)
                digest = sha256(event).digest()
                # A comment shows that the connection is alive, and ends the stream if it is not.
                yield b": same\n\n" if digest == sent else event
                sent = digest
                await self._rest()
        finally:
            asked.session.streams -= 1

    def _has_ended(self, session: Session) -> bool:
        return self._services.is_stopping() or self._services.sessions.find(session.id) is None

    async def _rest(self) -> None:
        """Waits until the page is read again, and ends earlier if the console does."""
        left_seconds = self._page.live_seconds
        while left_seconds > 0 and not self._services.is_stopping():
            await asyncio.sleep(min(_TICK_SECONDS, left_seconds))
            left_seconds -= _TICK_SECONDS

    async def _event(self, asked: ConsoleRequest) -> bytes:
        try:
            html = render_live(self._page.template, await self._context(asked))
        except (ConsoleError, HeadraceError, TimeoutError) as error:
            message = explain(error).message if isinstance(error, ConsoleError | HeadraceError) else "timeout"
            return b"event: problem\ndata: " + json.dumps(message).encode() + b"\n\n"
        return b"event: live\ndata: " + json.dumps(html).encode() + b"\n\n"


def _unquoted(text: str) -> str:
    """Paths are matched as they were sent, so that a name may contain a slash as ``%2F``."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise NotFound("the path is not UTF-8") from None
