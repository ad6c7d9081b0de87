"""Answers the two requests of a login by an OpenID provider: its begin, and the provider's answer.

The provider sends the browser back from another site, so the cookie of the attempt is ``SameSite=Lax``, lives ten
minutes and goes to these two paths only. The cookie of the session stays ``SameSite=Strict``. Browsers do not send it
along a chain of redirects that another site began; so the answer is a page that opens the next page itself.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.client.errors import HeadraceError
from headrace.console.answers import html_answer, page_context
from headrace.console.body import read_query
from headrace.console.entrance import Entrance, local_path
from headrace.console.oidc.attempt import LONGEST_MS, begin_attempt, resume_attempt
from headrace.console.oidc.provider import ERROR_CODE, Login, Provider
from headrace.console.problems import ConsoleError, NotFound, Refused
from headrace.console.services import Services
from headrace.console.visitors import address_of

_T = TypeVar("_T")
BEGIN_PATH = "/login/oidc"
_COOKIE = "headrace_oidc"
_CODE = re.compile(r"[\x20-\x7e]{1,4096}")


class OidcAnswers:
    """The login of one console by its provider."""

    def __init__(self, services: Services, entrance: Entrance) -> None:
        self._services = services
        self._entrance = entrance
        self._settings = services.settings.oidc
        self._provider = None if self._settings is None else Provider(self._settings, services.clock)
        self._key = secrets.token_bytes(32)
        self._asking = asyncio.Lock()

    async def begin(self, request: Request) -> Response:
        """Sends the browser to the provider."""
        provider = self._known()
        attempt = begin_attempt(self._key, self._services.clock.wall_ms(), read_query(request).get("next", "/"))
        try:
            self._check_host(request)
            address = await self._asked(lambda: provider.address_for(attempt))
        except ConsoleError as error:
            return self._failed(request, error)
        response = RedirectResponse(address, 303)
        response.set_cookie(
            _COOKIE,
            attempt.cookie,
            max_age=LONGEST_MS // 1_000,
            path=BEGIN_PATH,
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )
        return response

    async def end(self, request: Request) -> Response:
        """Takes the provider's answer: checks that this browser asked, gets the tokens, and begins a session."""
        provider = self._known()
        query = read_query(request)
        cookie = request.cookies.get(_COOKIE, "")
        attempt = resume_attempt(self._key, self._services.clock.wall_ms(), cookie, query.get("state", ""))
        try:
            self._check_host(request)
            if attempt is None:
                raise Refused("the login was not begun in this browser, or more than ten minutes ago; log in again")
            if "error" in query:
                code = query["error"] if ERROR_CODE.fullmatch(query["error"]) else "an error"
                raise Refused(f"the provider does not log you in: {code}")
            if not _CODE.fullmatch(query.get("code", "")):
                raise Refused("the provider's answer has no code")
            begun = attempt
            login = await self._asked(lambda: provider.log_in(begun, query["code"], query.get("iss")))
            reader = await self._entrance.open_reader(_options(login))
        except (ConsoleError, HeadraceError) as error:
            return self._failed(request, error)
        shared = page_context(self._services, None, title="Logged in")
        response = html_answer(request, None, "logged_in.html", {**shared, "next": local_path(attempt.next)})
        await self._entrance.let_in(request, response, login.user, reader, login.ends_ms)
        response.delete_cookie(_COOKIE, path=BEGIN_PATH)
        return response

    # -- parts

    def _known(self) -> Provider:
        if self._provider is None:
            raise NotFound("this console has no login by a provider")
        return self._provider

    async def _asked(self, work: Callable[[], _T]) -> _T:
        """Runs work on one thread for all logins, so that a slow provider takes no thread of the other pages."""
        async with self._entrance.one_login(), self._asking:
            return await asyncio.to_thread(work)

    @property
    def _is_secure(self) -> bool:
        return self._settings is not None and self._settings.is_secure

    def _check_host(self, request: Request) -> None:
        """The cookie of a login under another name would not come back to the redirect URL."""
        assert self._settings is not None
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname
        if name != urlsplit(self._settings.redirect_url).hostname:
            raise Refused(f"open the console as {self._settings.redirect_origin} to log in")

    def _failed(self, request: Request, error: ConsoleError | HeadraceError) -> Response:
        self._services.audit.write("", address_of(request), "login", {}, f"failed: {error}")
        response = self._entrance.login_page(request, "/", error)
        response.delete_cookie(_COOKIE, path=BEGIN_PATH)
        return response


def _options(login: Login) -> dict[str, object]:
    """The options of a client that logs in with the token. A provider gives the same token until it ends."""

    async def token() -> tuple[str, float]:
        return login.token, login.ends_ms / 1_000

    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": token}
