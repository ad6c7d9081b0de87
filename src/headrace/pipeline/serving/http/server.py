"""Answers queries over HTTP: ``GET /query?sql=...``, ``POST /query`` with ``{"sql": ..., "limit": ...}``, ``GET
/views``.

Answers are JSON, CSV (``format=csv`` or ``Accept: text/csv``) or an Arrow IPC stream (``format=arrow`` or ``Accept:
application/vnd.apache.arrow.stream``)::

    {"columns": ["page", "clicks"], "rows": [["home", 12]], "truncated": false,
     "as_of": [{"view": "pages", "version": 2, "offsets": {"clicks": {"0": 1200}}, "updated_ms": ...,
                "age_ms": 85, "complete_ms": ...}]}

With CSV and Arrow the last two are the headers ``Headrace-Truncated`` and ``Headrace-As-Of``. With ``page_size`` an
answer in JSON or CSV comes in pages (``large_answers``). An error is ``{"error": "...", "kind": "..."}`` with a status
that depends on the kind. The server listens on 127.0.0.1 by default. An address that other machines can reach needs TLS
and a secret (``http_endpoints/``).

Queries run on 16 threads; further queries wait. CSV, Arrow and pages use at most eight of these threads.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.http_endpoints.asgi_server import AsgiServer
from headrace.http_endpoints.protection import Protection
from headrace.pipeline.serving.database_url import serving_url
from headrace.pipeline.serving.errors import (
    AnswerTooLarge,
    DatabaseUnreachable,
    PageGone,
    QueryError,
    ServerBusy,
    ServingError,
)
from headrace.pipeline.serving.http.answers import LargeResponse, page_response
from headrace.pipeline.serving.http.requests import CSV, JSON, BadRequest, QueryRequest, query_request
from headrace.pipeline.serving.queries.formats import answer_value
from headrace.pipeline.serving.queries.large_answers import LargeAnswers
from headrace.pipeline.serving.queries.query import QueryService
from headrace.properties import ConfigError

logger = logging.getLogger(__name__)

_QUERIES_AT_ONCE = 16
#: Of these, how many may be large: a small query never waits for large ones only.
_LARGE_AT_ONCE = 8
_STATUS_OF = {"bad_query": 400, "read_only": 403, "timeout": 408, "different_offsets": 409, "not_served": 503}
_OTHER_ERRORS: tuple[tuple[type[Exception], tuple[int, str]], ...] = (
    (BadRequest, (400, "bad_request")),
    (DatabaseUnreachable, (503, "unreachable")),
    (ServerBusy, (503, "busy")),
    (PageGone, (410, "page_gone")),
    (AnswerTooLarge, (507, "too_large")),
)


# -------------------------------------------------------------------------------------------------------- requests


def application(service: QueryService, answers: LargeAnswers, routes: Sequence[Route] = ()) -> Starlette:
    """An ASGI application, for uvicorn or any other server.

    :param routes: further routes.
    """
    threads = anyio.CapacityLimiter(_QUERIES_AT_ONCE)
    large = anyio.CapacityLimiter(_LARGE_AT_ONCE)

    async def query(request: Request) -> Response:
        asked = await query_request(request)
        if asked.page_size is None and asked.form == JSON:
            async with threads:
                return await run_in_threadpool(_small_answer, service, asked)
        async with large, threads:
            return await run_in_threadpool(_large_answer, answers, asked)

    async def views(_: Request) -> Response:
        async with threads:
            found = await run_in_threadpool(service.views)
        return JSONResponse({"views": [asdict(view) for view in found]})

    async def usage(_: Request) -> Response:
        return JSONResponse({"GET /query": "?sql=SELECT ...", "POST /query": {"sql": "SELECT ..."}, "GET /views": ""})

    handlers: Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        ServingError: _answer_error,
        HTTPException: _answer_http_error,
        Exception: _answer_mistake,
    }
    return Starlette(
        routes=[Route("/", usage), Route("/query", query, methods=["GET", "POST"]), Route("/views", views), *routes],
        exception_handlers=handlers,
    )


def _small_answer(service: QueryService, asked: QueryRequest) -> Response:
    assert asked.limit is not None, "the rows of a JSON answer are limited"
    found = service.query(asked.sql, limit=asked.limit, timeout_ms=asked.timeout_ms, same_offsets=asked.same_offsets)
    return JSONResponse(answer_value(found))


def _large_answer(answers: LargeAnswers, asked: QueryRequest) -> Response:
    if asked.page:
        assert asked.page_size is not None, "a page has a size"
        return page_response(answers.page(asked.page, page_size=asked.page_size), asked.form)
    if asked.page_size is not None:
        first = answers.first_page(
            asked.sql, page_size=asked.page_size, timeout_ms=asked.timeout_ms, same_offsets=asked.same_offsets
        )
        return page_response(first, asked.form)
    if asked.form == CSV:
        found = answers.csv(asked.sql, limit=asked.limit, timeout_ms=asked.timeout_ms, same_offsets=asked.same_offsets)
    else:
        found = answers.arrow(
            asked.sql, limit=asked.limit, timeout_ms=asked.timeout_ms, compression=asked.compression,
            same_offsets=asked.same_offsets,
        )  # fmt: skip
    return LargeResponse(found, asked.form)


# --------------------------------------------------------------------------------------------------------- errors


async def _answer_error(_: Request, error: Exception) -> Response:
    found: dict[str, object] = {"error": str(error)}
    if isinstance(error, QueryError):
        status, kind = _STATUS_OF[error.kind], error.kind
        if error.position is not None:
            found["position"] = error.position
    else:
        status, kind = next((known for kinds, known in _OTHER_ERRORS if isinstance(error, kinds)), (404, "no_views"))
    return JSONResponse({**found, "kind": kind}, status)


async def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "kind": "http"}, error.status_code, error.headers)


async def _answer_mistake(_: Request, error: Exception) -> Response:
    logger.error("an HTTP request failed", exc_info=error)
    return JSONResponse({"error": "internal error; see the log of the server", "kind": "internal"}, 500)


# --------------------------------------------------------------------------------------------------------- serving


class HttpServer:
    """Listens from its construction on. ``run`` serves until a signal, or until ``stop`` is called."""

    def __init__(
        self,
        url: str,
        host: str = "127.0.0.1",
        port: int = 0,
        protection: Protection | None = None,
        routes: Sequence[Route] = (),
    ) -> None:
        """
        :raises ServingError: if the address is in use, or needs more protection.
        """
        self._service = QueryService(url)
        self._answers = LargeAnswers(self._service)
        made = application(self._service, self._answers, routes)
        try:
            self._server = AsgiServer(made, host, port, protection or Protection())
        except ConfigError as error:
            self._service.close()
            raise ServingError(str(error)) from None
        self.port = self._server.port

    def run(self) -> None:
        try:
            self._server.run()
        finally:
            self._answers.close()
            self._service.close()

    def stop(self) -> None:
        self._server.stop()

    @property
    def is_stopping(self) -> bool:
        return self._server.is_stopping


def serve(
    project_or_url: str | Path, host: str = "127.0.0.1", port: int = 8090, protection: Protection | None = None
) -> None:
    """Serves in the foreground until SIGTERM or Ctrl-C. Prints ``ready HOST:PORT`` when it listens.

    :param project_or_url: the folder of a project, or the URL of a database.
    :raises ServingError: if there is no such project, or the address is in use.
    """
    serve_until_signal(HttpServer(serving_url(project_or_url), host, port, protection), host)


def serve_until_signal(server: HttpServer, host: str) -> None:
    shown_host = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"ready {shown_host}:{server.port}\n")
    sys.stdout.flush()
    server.run()
