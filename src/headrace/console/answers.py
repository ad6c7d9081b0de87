"""Makes answers: pages with what every page shows, and problems as a page or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from headrace.client.errors import HeadraceError
from headrace.console.api.encoding import encoded
from headrace.console.pages.table import NAVIGATION
from headrace.console.problems import BadFields, ConsoleError, Problem, explain
from headrace.console.protection.origin import TOKEN_FIELD
from headrace.console.protection.sessions import Session
from headrace.console.rendering import render
from headrace.console.services import Services
from headrace.console.visitors import find_session, write_cookie

logger = getLogger(__name__)
_INTERNAL = Problem(500, "internal_error", "the console made a mistake", "The log of the console says more.")


def wants_json(request: Request) -> bool:
    return request.url.path.startswith("/api/")


def json_answer(value: object, status: int = 200) -> Response:
    return Response(encoded(value), status, media_type="application/json")


def page_context(services: Services, session: Session | None, *, title: str, section: str = "") -> dict[str, Any]:
    """Returns what every page shows, besides its own data."""
    return {
        "title": title,
        "section": section,
        "navigation": NAVIGATION,
        "settings": services.settings,
        "user": "" if session is None else session.user,
        "has_session": session is not None,
        "token_field": TOKEN_FIELD,
        "csrf_token": "" if session is None else session.csrf_token,
    }


def html_answer(
    request: Request, session: Session | None, template: str, context: Mapping[str, Any], status: int = 200
) -> Response:
    message = "" if session is None else session.take_message()
    response = HTMLResponse(render(template, {**context, "message": message}), status)
    if session is not None:
        write_cookie(request, response, session)
    return response


def problem_answer(services: Services, request: Request, error: Exception) -> Response:
    """The answer to a request that failed. An error that nobody expected goes to the log, and its text stays there."""
    if isinstance(error, TimeoutError) and not isinstance(error, HeadraceError):
        problem = Problem(504, "timeout", "the cluster did not answer in time", "Reload to try again.")
    elif isinstance(error, ConsoleError | HeadraceError):
        problem = explain(error)
    else:
        logger.error("a request of %s failed", request.url.path, exc_info=error)
        problem = _INTERNAL
    if wants_json(request):
        body: dict[str, object] = {"error": problem.name, "message": problem.message, "advice": problem.advice}
        if isinstance(error, BadFields):
            body["fields"] = error.problems
        return json_answer(body, problem.status)
    session = find_session(services, request)
    context = page_context(services, session, title="Not possible")
    return HTMLResponse(render("problem.html", {**context, "message": "", "problem": problem}), problem.status)
