"""Finds the session of a request by its cookie, and writes the cookie into the answer.

A browser that opens a page of a console without login gets a session. A program that reads JSON without a cookie gets a
session for this one answer only, so that programs do not crowd out browsers; ``/api/session`` gives it one to keep.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.console.problems import NeedsLogin
from headrace.console.protection.sessions import LONGEST_MS, Session
from headrace.console.services import Services


def cookie_name(request: Request) -> str:
    """Browsers send the cookies of a host to all its ports, so the name has the port."""
    port = (request.scope.get("server") or ("", 0))[1]
    return f"headrace_console_{port}"


def find_session(services: Services, request: Request) -> Session | None:
    return services.sessions.find(request.cookies.get(cookie_name(request), ""))


async def session_of(services: Services, request: Request, *, is_kept: bool = True) -> Session:
    """The session of a request, or a new one if the console asks for no login.

    :param is_kept: whether a new session is good for further requests.
    :raises NeedsLogin: if the visitor has to log in.
    """
    session = find_session(services, request)
    if session is not None:
        return session
    if services.reader is None:
        raise NeedsLogin
    if is_kept:
        return await services.sessions.begin("", services.reader, owns_reader=False)
    now_ms = services.clock.monotonic_ms()
    return Session("", services.reader, now_ms, now_ms)


def write_cookie(request: Request, response: Response, session: Session) -> None:
    """Gives the session to the browser, if the browser does not have it yet."""
    name = cookie_name(request)
    if request.cookies.get(name) != session.id:
        response.set_cookie(
            name,
            session.id,
            max_age=LONGEST_MS // 1_000,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def delete_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(cookie_name(request), path="/", httponly=True, samesite="strict")


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""
