"""Builds the console's ASGI application: routes from the two registries, and the protection around them.

The order of what a request passes: the headers of every answer, the check of ``Host``, the route, the session, and for
changes origin, token and ``--read-only``. Paths are matched as they were sent, without decoding ``%2F``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from headrace.client.errors import HeadraceError
from headrace.console.action_answers import ActionAnswers
from headrace.console.actions.table import ACTIONS
from headrace.console.answers import json_answer, problem_answer
from headrace.console.api.openapi import openapi_document
from headrace.console.entrance import Entrance
from headrace.console.metrics import metrics_text
from headrace.console.oidc.settings import CALLBACK_PATH
from headrace.console.oidc_answers import BEGIN_PATH, OidcAnswers
from headrace.console.page_answers import PageAnswers
from headrace.console.pages.table import PAGES
from headrace.console.problems import ConsoleError, NeedsLogin, NotFound
from headrace.console.protection.headers import Application, Receive, Scope, Send, with_headers
from headrace.console.record_answers import RecordAnswers
from headrace.console.rendering import FOLDER
from headrace.console.services import Services
from headrace.console.view_answers import ViewAnswers

_METRICS_TYPE = "text/plain; version=0.0.4"
_Endpoint = Callable[[Request], Awaitable[Response]]


def build_application(services: Services) -> Application:
    """The application of one console."""

    def guarded(endpoint: _Endpoint) -> _Endpoint:
        """An endpoint whose errors become an answer."""

        async def answered(request: Request) -> Response:
            try:
                return await endpoint(request)
            except NeedsLogin as error:
                return entrance.ask(request, error)
            except (ConsoleError, HeadraceError, TimeoutError) as error:
                return problem_answer(services, request, error)
            except Exception as error:  # noqa: BLE001  uvicorn would answer without the headers; the log gets the error
                return problem_answer(services, request, error)

        return answered

    entrance = Entrance(services)
    application = Starlette(
        routes=_routes(services, entrance, guarded), exception_handlers={HTTPException: _http_problem(services)}
    )
    return with_headers(_with_host_check(services, _with_sent_path(application)))


def _routes(services: Services, entrance: Entrance, guarded: Callable[[_Endpoint], _Endpoint]) -> list[BaseRoute]:
    document = openapi_document(PAGES, ACTIONS)

    async def openapi(_: Request) -> Response:
        return json_answer(document)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(metrics_text(services.metric_values()), media_type=_METRICS_TYPE)

    def route(path: str, endpoint: _Endpoint, method: str = "GET") -> Route:
        return Route(path, _counted(services, path, guarded(endpoint)), methods=[method])

    routes: list[BaseRoute] = [
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
        route("/api/openapi.json", openapi),
        route("/metrics", metrics),
        route("/api/session", entrance.session),
        route("/login", entrance.form),
        route("/login", entrance.log_in, "POST"),
        route("/logout", entrance.log_out, "POST"),
    ]
    oidc_answers = OidcAnswers(services, entrance)
    routes += [route(BEGIN_PATH, oidc_answers.begin), route(CALLBACK_PATH, oidc_answers.end)]
    record_answers = RecordAnswers(services)
    routes += [
        route("/topics/{topic}/tail/events", record_answers.tail),
        route("/topics/{topic}/search/download", record_answers.found),
        route("/topics/{topic}/records/{partition}/{offset}/download", record_answers.value),
    ]
    routes.append(route("/sql/download", ViewAnswers(services).download))
    for action in ACTIONS:
        answers = ActionAnswers(services, action)
        routes += [
            route(action.path, answers.form),
            route(action.path, answers.submit, "POST"),
            route(action.api_path, answers.json, "POST"),
        ]
    for page in PAGES:
        page_answers = PageAnswers(services, page)
        routes += [route(page.path, page_answers.html), route(page.api_path, page_answers.json)]
    return routes


def _counted(services: Services, path: str, endpoint: _Endpoint) -> _Endpoint:
    async def answered(request: Request) -> Response:
        begun_s = perf_counter()
        response = await endpoint(request)
        services.counts.request(path, response.status_code, perf_counter() - begun_s)
        return response

    return answered


def _http_problem(services: Services) -> Callable[[Request, Any], Awaitable[Response]]:
    """Starlette's own errors: no such route, or not with this method."""

    async def answer(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return problem_answer(services, request, NotFound("there is no such page"))
        problem = ConsoleError(error.detail)
        problem.status = error.status_code
        return problem_answer(services, request, problem)

    return answer


def _with_sent_path(application: Application) -> Application:
    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path"):
            sent: bytes = scope["raw_path"]
            scope = {**scope, "path": sent.partition(b"?")[0].decode("ascii", errors="replace")}
        await application(scope, receive, send)

    return routed


def _with_host_check(services: Services, application: Application) -> Application:
    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) == 1 and services.hosts.allows(hosts[0]):
            await application(scope, receive, send)
            return
        text = "This console does not have the name that the request asks for.\nAllow the name with --allowed-host.\n"
        await PlainTextResponse(text, 421)(scope, receive, send)

    return checked
