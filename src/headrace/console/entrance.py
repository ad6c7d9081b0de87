"""Lets visitors log in with a user of the cluster, and out again.

The login opens an admin client with the user and the password, or with the token of an OpenID provider
(``oidc_answers.py``); if the brokers accept them, the session gets this client. So the ACLs of the user decide what the
visitor sees and changes. A login ends the session that the browser had before. Failed logins are slowed down for
everybody: at most four wrong passwords per second are tried.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.client.errors import AuthenticationFailed, HeadraceError
from headrace.console.answers import html_answer, json_answer, page_context, problem_answer, wants_json
from headrace.console.body import read_form, read_query
from headrace.console.cluster.reader import ClusterReader
from headrace.console.fields import Field, read_fields
from headrace.console.problems import BadFields, ConsoleError, NeedsLogin, Problem, Refused, TooMany, explain
from headrace.console.protection.origin import TOKEN_FIELD, check_origin, check_token
from headrace.console.services import Services
from headrace.console.visitors import address_of, delete_cookie, find_session, session_of, write_cookie

LOGIN_FIELDS = (
    Field("user", is_required=True, longest=255),
    Field("password", kind="secret", is_required=True),
    Field("next", kind="text", default="/"),
)
_START_TIMEOUT_MS = 10_000
_MOST_LOGINS = 8
_DELAY_SECONDS = 0.25
_COOKIE = "headrace_login"


class Entrance:
    """The login of one console."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._key = secrets.token_bytes(32)
        self._running = 0
        self._failing = asyncio.Lock()

    def ask(self, request: Request, error: NeedsLogin) -> Response:
        """Answers a visitor without a session: the login page, or an error for a program."""
        if wants_json(request) or request.method != "GET":
            return problem_answer(self._services, request, error)
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?{urlencode({'next': here})}", 303)

    async def session(self, request: Request) -> Response:
        found = await session_of(self._services, request)
        response = json_answer(
            {
                "user": found.user,
                "csrf_token": found.csrf_token,
                "is_read_only": self._services.settings.is_read_only,
            }
        )
        write_cookie(request, response, found)
        return response

    async def form(self, request: Request) -> Response:
        if not self._services.settings.needs_login:
            return RedirectResponse("/", 303)
        return self._form(request, read_query(request).get("next", "/"))

    async def log_in(self, request: Request) -> Response:
        check_origin(request.headers, request.url.scheme)
        if self._services.settings.oidc is not None:
            raise Refused("visitors of this console log in by its provider, not by a password")
        given = await read_form(request)
        check_token(self._token(request.cookies.get(_COOKIE, "")), given.pop(TOKEN_FIELD, None))
        following = local_path(given.get("next", "/"))
        try:
            values = read_fields(LOGIN_FIELDS, given)
            user = str(values["user"])
            reader = await self.open_reader({"sasl.username": user, "sasl.password": str(values["password"])})
        except (BadFields, HeadraceError) as error:
            self._services.audit.write(given.get("user", ""), address_of(request), "login", {}, f"failed: {error}")
            return self._form(request, following, explain(error), given.get("user", ""))
        response = RedirectResponse(following, 303)
        await self.let_in(request, response, user, reader)
        response.delete_cookie(_COOKIE, path="/login")
        return response

    async def log_out(self, request: Request) -> Response:
        check_origin(request.headers, request.url.scheme)
        session = find_session(self._services, request)
        if session is not None:
            check_token(session.csrf_token, (await read_form(request)).get(TOKEN_FIELD))
            await self._services.sessions.end(session)
        response = RedirectResponse("/login", 303)
        delete_cookie(request, response)
        return response

    # -- what each login needs

    @asynccontextmanager
    async def one_login(self) -> AsyncIterator[None]:
        """
        :raises TooMany: if as many logins run as may.
        """
        if self._running >= _MOST_LOGINS:
            raise TooMany(f"{_MOST_LOGINS} logins are running")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def open_reader(self, login: Mapping[str, object]) -> ClusterReader:
        """A reader with the rights of a user.

        :param login: the options of a client with which the user logs in.
        :raises HeadraceError: if the brokers do not accept the login, or do not answer.
        """
        try:
            async with self.one_login():
                reader = ClusterReader({**self._services.settings.clients, **login}, self._services.clock)
                try:
                    await reader.admin.start(timeout_ms=_START_TIMEOUT_MS)
                except BaseException:
                    await reader.close()
                    raise
                return reader
        except AuthenticationFailed:
            async with self._failing:
                await asyncio.sleep(_DELAY_SECONDS)
            raise
        except ValueError as error:
            raise ConsoleError(str(error)) from None

    async def let_in(
        self, request: Request, response: Response, user: str, reader: ClusterReader, ends_ms: int | None = None
    ) -> None:
        """Begins a session with an id of its own, and ends the session that the browser had.

        :param ends_ms: when the login ends, in milliseconds since 1970; None: it has no end of its own.
        """
        services = self._services
        earlier = find_session(services, request)
        if earlier is not None:
            await services.sessions.end(earlier)
        lasts_ms = None if ends_ms is None else ends_ms - services.clock.wall_ms()
        session = await services.sessions.begin(user, reader, owns_reader=True, lasts_ms=lasts_ms)
        services.audit.write(user, address_of(request), "login", {}, "done")
        write_cookie(request, response, session)

    def login_page(self, request: Request, following: str, error: ConsoleError | HeadraceError) -> Response:
        """The page for another attempt, after a failed login."""
        return self._form(request, following, explain(error))

    # -- parts

    def _token(self, cookie: str) -> str:
        """The token of a login form: only the console can make it from the browser's cookie."""
        return (
            hmac.digest(self._key, cookie.encode(errors="replace"), "sha256").hex() if cookie else secrets.token_hex()
        )

    def _form(self, request: Request, following: str, problem: Problem | None = None, user: str = "") -> Response:
        cookie = secrets.token_urlsafe(32)
        oidc = self._services.settings.oidc
        context = {
            "provider": "" if oidc is None else oidc.provider_host,
            **page_context(self._services, None, title="Log in"),
            "csrf_token": self._token(cookie),
            "next": local_path(following),
            "problem": problem,
            "given_user": user,
        }
        response = html_answer(request, None, "login.html", context, 200 if problem is None else problem.status)
        is_secure = request.url.scheme == "https"
        response.set_cookie(_COOKIE, cookie, path="/login", secure=is_secure, httponly=True, samesite="strict")
        return response


def local_path(path: str) -> str:
    """A path of this console: a login must not lead to another site."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local else "/"
