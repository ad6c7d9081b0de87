"""Sends answers by HTTP: whole ones from memory, pages, and large ones from a file of the spool.

A client that reads slowly holds a file and a connection, no transaction and no thread. Its connection is closed when it
takes nothing for a minute (``http_endpoints/asgi_protection.py``), or has not read the answer within ``SEND_S``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.pipeline.serving.http.requests import CSV, MEDIA_TYPES
from headrace.pipeline.serving.queries.formats import plain_cell
from headrace.pipeline.serving.queries.large_answers import LargeAnswer, Page, csv_lines
from headrace.views.answers import AsOf

logger = logging.getLogger(__name__)

SEND_S = 1800.0
_CHUNK_BYTES = 1 << 20


def answer_headers(as_of: Sequence[AsOf], is_truncated: bool) -> dict[str, str]:
    return {
        "Headrace-As-Of": json.dumps([asdict(each) for each in as_of]),
        "Headrace-Truncated": str(is_truncated).lower(),
    }


def page_response(page: Page, form: str) -> Response:
    """A page as JSON, or as CSV with a heading of its own."""
    if form == CSV:
        rows = ([plain_cell(value) for value in json.loads(row)] for row in page.rows)
        headers = answer_headers(page.as_of, is_truncated=False)
        headers |= {} if page.next is None else {"Headrace-Next": page.next}
        return Response(csv_lines([page.columns, *rows]), media_type=MEDIA_TYPES[CSV], headers=headers)
    rest = {
        "columns": page.columns,
        "truncated": False,
        "as_of": [asdict(each) for each in page.as_of],
        "next": page.next,
    }
    body = b'{"rows": [%s], %s' % (b", ".join(page.rows), json.dumps(rest).encode()[1:])
    return Response(body, media_type="application/json")


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # the request, if nobody has read it


class LargeResponse(Response):
    """Sends the file of an answer, and closes it."""

    def __init__(self, answer: LargeAnswer, form: str) -> None:
        self._file = answer.file
        headers = answer_headers(answer.as_of, answer.is_truncated)
        headers["Content-Length"] = str(answer.file.size_bytes)
        super().__init__(None, media_type=MEDIA_TYPES[form], headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send_body(scope, gone, send)
        finally:
            self._file.close()
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _send_body(self, scope: Scope, gone: asyncio.Future[None], send: Send) -> None:
        position, size_bytes = 0, self._file.size_bytes
        deadline_s = time.monotonic() + SEND_S
        while position < size_bytes:
            if gone.done():
                return
            if time.monotonic() > deadline_s:
                # An answer that is not complete makes uvicorn close the connection.
                client = (scope.get("client") or ("unknown",))[0]
                logger.warning("%s has read %d of %d bytes in %.0f s", client, position, size_bytes, SEND_S)
                return
            chunk = await run_in_threadpool(self._file.read_at, position, _CHUNK_BYTES)
            position += len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": position < size_bytes})
