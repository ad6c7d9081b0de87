"""Answers queries over HTTP: ``GET /query?sql=...``, ``POST /query`` with ``{"sql": ..., "limit": ...}``, ``GET
/views``.

Answers are JSON, or CSV with ``format=csv`` or ``Accept: text/csv``::

    {"columns": ["page", "clicks"], "rows": [["home", 12]], "truncated": false,
     "as_of": [{"view": "pages", "version": 2, "offsets": {"clicks": {"0": 1200}}, "updated_ms": ...,
                "age_ms": 85, "complete_ms": ...}]}

With CSV the last two are the headers ``Headrace-Truncated`` and ``Headrace-As-Of``. An error is
``{"error": "...", "kind": "..."}`` with a status that depends on the kind. The server listens on 127.0.0.1 by default.
An address that other machines can reach needs TLS and a secret (``http_protection.py``).

Queries run on 16 threads; further queries wait.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from ssl import SSLContext

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.http_endpoints.protection import Protection
from headrace.pipeline.serving.database_url import serving_url
from headrace.pipeline.serving.errors import DatabaseUnreachable, QueryError, ServingError
from headrace.pipeline.serving.formats import answer_value, csv_text
from headrace.pipeline.serving.http_protection import (
    HINTS,
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    BoundedProtocol,
    with_access,
)
from headrace.pipeline.serving.query import DEFAULT_LIMIT, DEFAULT_TIMEOUT_MS, Answer, QueryService
from headrace.properties import ConfigError

logger = logging.getLogger(__name__)

MAX_LIMIT = 100_000
MAX_TIMEOUT_MS = 300_000
_MAX_BODY_BYTES = 1 << 20
_QUERIES_AT_ONCE = 16
_STATUS_OF = {"bad_query": 400, "read_only": 403, "timeout": 408, "not_served": 503}


class BadRequest(ServingError):
    """The HTTP request is wrong."""


# -------------------------------------------------------------------------------------------------------- requests


def application(service: QueryService) -> Starlette:
    """An ASGI application, for uvicorn or any other server."""
    threads = anyio.CapacityLimiter(_QUERIES_AT_ONCE)

    async def query(request: Request) -> Response:
        parameters = await _parameters(request)
        sql = parameters.get("sql")
        if not isinstance(sql, str):
            raise BadRequest('sql is missing: use GET /query?sql=SELECT..., or POST {"sql": "SELECT ..."}')
        limit = _number(parameters, "limit", DEFAULT_LIMIT, MAX_LIMIT)
        timeout_ms = _number(parameters, "timeout_ms", DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS)
        wants_csv = _wants_csv(request, parameters)

        def work() -> Response:
            answer = service.query(sql, limit=limit, timeout_ms=timeout_ms)
            return _as_csv(answer) if wants_csv else JSONResponse(answer_value(answer))

        async with threads:
            return await run_in_threadpool(work)

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
        routes=[Route("/", usage), Route("/query", query, methods=["GET", "POST"]), Route("/views", views)],
        exception_handlers=handlers,
    )


async def _parameters(request: Request) -> dict[str, object]:
    if request.method != "POST":
        return dict(request.query_params)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"the body of a request has at most {_MAX_BODY_BYTES} bytes")
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadRequest('the body must be an object: {"sql": "SELECT ..."}')
    return {**request.query_params, **parsed}


def _number(parameters: Mapping[str, object], name: str, default: int, most: int) -> int:
    given = parameters.get(name, default)
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdecimal()) or not 1 <= int(text) <= most:
        raise BadRequest(f"{name} must be a number from 1 to {most}, not {text[:40]!r}")
    return int(text)


def _wants_csv(request: Request, parameters: Mapping[str, object]) -> bool:
    form = parameters.get("format")
    if form not in (None, "json", "csv"):
        raise BadRequest(f"format must be json or csv, not {str(form)[:40]!r}")
    return form == "csv" or (form is None and "text/csv" in request.headers.get("accept", ""))


# --------------------------------------------------------------------------------------------------------- answers


def _as_csv(answer: Answer) -> Response:
    headers = {
        "Headrace-As-Of": json.dumps([asdict(as_of) for as_of in answer.as_of]),
        "Headrace-Truncated": str(answer.is_truncated).lower(),
    }
    return Response(csv_text(answer.columns, answer.rows), media_type="text/csv", headers=headers)


async def _answer_error(_: Request, error: Exception) -> Response:
    if isinstance(error, QueryError):
        status, kind = _STATUS_OF[error.kind], error.kind
    elif isinstance(error, DatabaseUnreachable):
        status, kind = 503, "unreachable"
    else:
        status, kind = (400, "bad_request") if isinstance(error, BadRequest) else (404, "no_views")
    return JSONResponse({"error": str(error), "kind": kind}, status)


async def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail, "kind": "http"}, error.status_code, error.headers)


async def _answer_mistake(_: Request, error: Exception) -> Response:
    logger.error("an HTTP request failed", exc_info=error)
    return JSONResponse({"error": "internal error; see the log of the server", "kind": "internal"}, 500)


# --------------------------------------------------------------------------------------------------------- serving


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal ends the server normally. uvicorn would raise the signal again afterwards, which looks like a
        failure.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class HttpServer:
    """Listens from its construction on. ``run`` serves until a signal, or until ``stop`` is called."""

    def __init__(self, url: str, host: str = "127.0.0.1", port: int = 0, protection: Protection | None = None) -> None:
        """
        :raises ServingError: if the address is in use, or needs more protection.
        """
        protection = protection or Protection()
        self._service = QueryService(url)
        try:
            self._listener, tls = _listen(host, port, protection)
        except ServingError:
            self._service.close()
            raise
        self.port: int = self._listener.getsockname()[1]
        config = uvicorn.Config(
            with_access(application(self._service), protection.access),
            http=BoundedProtocol,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            limit_concurrency=MAX_CONNECTIONS,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        config.load()
        config.ssl = tls
        self._server = _Server(config)

    def run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._listener.close()
            self._service.close()

    def stop(self) -> None:
        self._server.should_exit = True


def _listen(host: str, port: int, protection: Protection) -> tuple[socket.socket, SSLContext | None]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        protection.check_address(str(address[0]), HINTS)
        tls = protection.tls_context()
        return socket.create_server(address[:2], family=family, backlog=512), tls
    except ConfigError as error:
        raise ServingError(f"cannot listen on {host}:{port}: {error}") from None
    except OSError as error:
        raise ServingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another address"
        ) from None


def serve(
    project_or_url: str | Path, host: str = "127.0.0.1", port: int = 8090, protection: Protection | None = None
) -> None:
    """Serves in the foreground until SIGTERM or Ctrl-C. Prints ``ready HOST:PORT`` when it listens.

    :param project_or_url: the folder of a project, or the URL of a database.
    :raises ServingError: if there is no such project, or the address is in use.
    """
    server = HttpServer(serving_url(project_or_url), host, port, protection)
    shown_host = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"ready {shown_host}:{server.port}\n")
    sys.stdout.flush()
    server.run()
