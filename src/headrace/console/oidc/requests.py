"""Sends requests to the provider: without redirects, at most 1 MiB of answer, at most ten seconds in all."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from headrace.console.problems import ConsoleError

if TYPE_CHECKING:
    from ssl import SSLContext

MAX_BYTES = 1024 * 1024
TIMEOUT_S = 10.0


class ProviderProblem(ConsoleError):
    """The provider does not answer, or not as OpenID Connect says."""

    status = 502
    name = "provider_failed"
    advice = "Try again. If that does not help, the log of the console and the provider's log say more."


def ask(
    url: str, tls: SSLContext | None, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Sends GET, or POST with a form. Runs on a thread.

    :raises ProviderProblem: if there is no answer, or the answer is too large.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    host = parts.hostname or ""
    connection = (
        HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=tls)
        if parts.scheme == "https"
        else HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    )
    # The timeout of the connection is for one read. This one is for the whole answer.
    deadline = threading.Timer(TIMEOUT_S, lambda: connection.sock and connection.sock.shutdown(2))
    deadline.daemon = True
    deadline.start()
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {"Accept": "application/json", "User-Agent": "headrace", **(headers or {})}
        body = None if form is None else urlencode(form).encode()
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("GET" if body is None else "POST", path, body, sent)
        response = connection.getresponse()
        content = response.read(MAX_BYTES + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise ProviderProblem(f"{url} does not answer ({type(error).__name__})") from None
    finally:
        deadline.cancel()
        connection.close()
    if len(content) > MAX_BYTES:
        raise ProviderProblem(f"the answer of {url} is larger than {MAX_BYTES} bytes")
    return response.status, content


def read_answer(url: str, content: bytes) -> dict[str, Any]:
    """
    :raises ProviderProblem: if the content is not a JSON object.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderProblem(f"the answer of {url} is not a JSON object")
    return found
