"""Checks that a change was asked by a page of the console itself: the origin, and a token that only its pages know.

A page of another site can make a browser post a form to the console, with the visitor's cookie. Three things stop it:
the cookie is ``SameSite=Strict``, the ``Origin`` is another one, and the page does not know the token. A program that
is no browser sends no ``Origin``; it needs the token too.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from headrace.console.problems import Refused

TOKEN_FIELD = "csrf_token"
TOKEN_HEADER = "x-csrf-token"


def check_origin(headers: Mapping[str, str], scheme: str) -> None:
    """
    :param headers: the headers of the request, in lower case.
    :param scheme: the scheme that the console is served by.
    :raises Refused: if another site asked.
    """
    origin = headers.get("origin")
    host = headers.get("host", "")
    # Behind a proxy that ends TLS, the browser's scheme is https although the console serves http.
    if origin is not None and origin.lower() not in (f"{scheme}://{host.lower()}", f"https://{host.lower()}"):
        raise Refused(f"the request comes from {origin[:200]!r}, not from a page of this console")
    if origin is None and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused("the request comes from a page of another site")


def check_token(expected: str, given: str | None) -> None:
    """
    :raises Refused: if the token is not that of the session.
    """
    if not given or not hmac.compare_digest(expected.encode(), given.encode(errors="replace")):
        raise Refused("the form is no longer good: its session has ended. Open the page again, then repeat the change")
