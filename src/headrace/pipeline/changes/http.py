"""Serves the changes of views over HTTP: ``GET /views/NAME/changes``, as server-sent events (``events``).

``Last-Event-ID`` (or ``?last_event_id=``) resumes after that event. A reader that does not take what it is sent for
``_SEND_S`` is disconnected; it can resume. Errors before the first event are JSON, as of the other routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from headrace.http_endpoints.asgi_protection import ABORT
from headrace.http_endpoints.protection import Protection
from headrace.pipeline.changes.feed import Feed, NotFollowed, TooManyReaders
from headrace.pipeline.changes.reading import CannotFollow, ChangeReader
from headrace.pipeline.serving.database_url import serving_url
from headrace.pipeline.serving.http.server import HttpServer, serve_until_signal

logger = logging.getLogger(__name__)

_SEND_S = 30.0
_ABORTED_S = 1.0
_RETRY_AFTER_S = "5"
_KINDS = {NotFollowed: "not_followed", TooManyReaders: "too_many_readers", CannotFollow: "not_followed"}


class FeedServer(HttpServer):
    """Answers queries and serves change feeds. Listens from its construction on."""

    def __init__(self, url: str, host: str = "127.0.0.1", port: int = 0, protection: Protection | None = None) -> None:
        """
        :raises ServingError: if the address is in use, or needs more protection.
        """
        self._changes = ChangeReader(url)
        self.feed = Feed(self._changes, is_stopping=lambda: self.is_stopping)
        try:
            super().__init__(url, host, port, protection, routes=(changes_route(self.feed),))
        except BaseException:
            self._changes.close()
            raise

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._changes.close()


def serve(
    project_or_url: str | Path, host: str = "127.0.0.1", port: int = 8090, protection: Protection | None = None
) -> None:
    """Serves in the foreground until SIGTERM or Ctrl-C. Prints ``ready HOST:PORT`` when it listens.

    :param project_or_url: the folder of a project, or the URL of a database.
    :raises ServingError: if there is no such project, or the address is in use.
    """
    serve_until_signal(FeedServer(serving_url(project_or_url), host, port, protection), host)


def changes_route(feed: Feed) -> Route:
    async def changes(request: Request) -> Response:
        view = request.path_params["name"]
        last_event_id = request.headers.get("last-event-id") or request.query_params.get("last_event_id", "")
        try:
            await feed.check(view)
        except (NotFollowed, TooManyReaders, CannotFollow) as error:
            return JSONResponse(
                {"error": str(error), "kind": _KINDS[type(error)]}, 503, {"Retry-After": _RETRY_AFTER_S}
            )
        return EventStream(feed.stream(view, last_event_id))

    return Route("/views/{name}/changes", changes)


class EventStream(StreamingResponse):
    """Sends events, and aborts the connection of a reader that does not take them."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events = events
        self._scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()

    async def stream_response(self, send: Send) -> None:
        async def bounded(message: Message) -> None:
            await asyncio.wait_for(send(message), _SEND_S)

        try:
            await super().stream_response(bounded)
        except TimeoutError:
            client = (self._scope.get("client") or ("unknown",))[0]
            logger.info("a reader of changes at %s took nothing for %s s and is disconnected", client, _SEND_S)
            self._scope.get("extensions", {}).get(ABORT, lambda: None)()
            await asyncio.sleep(_ABORTED_S)  # until the server has noticed that the connection has ended
