"""Sends one HTTP request to an address of the command line, with bounds on the time and the bytes of the answer.

The request is HTTP/1.0, so the answer ends with the connection. Redirects are not followed, and no proxy is used:
nothing but the given address is asked. The whole request has one time limit, whatever the server sends meanwhile.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from contextlib import suppress
from urllib.parse import urlsplit

from headrace.http_endpoints.access import Access

TIMEOUT_SECONDS = 4.0
MOST_BYTES = 16 << 20
_MOST_HEADER_BYTES = 32_768
_CHUNK = 65_536
_OK = 200


class NoAnswer(Exception):
    """The address does not answer as it should; the message says the address and the reason."""


async def fetch(url: str, access: Access, query: str = "") -> bytes:
    """The body of the answer to GET.

    :param query: an encoded query; empty for none.
    :raises NoAnswer: if there is no such answer in time.
    """
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await _fetch(url, access, query)
    except TimeoutError:
        raise NoAnswer(f"{url} did not answer within {TIMEOUT_SECONDS:g} s") from None
    except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
        raise NoAnswer(f"{url} does not answer: {error}") from None


async def _fetch(url: str, access: Access, query: str) -> bytes:
    parts = urlsplit(url)
    host = parts.hostname or ""
    context = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (80 if context is None else 443)
    reader, writer = await asyncio.open_connection(host, port, ssl=context, limit=_MOST_HEADER_BYTES)
    try:
        target = (parts.path or "/") + (f"?{query}" if query else "")
        lines = [f"GET {target} HTTP/1.0", f"Host: {parts.netloc}", "User-Agent: headrace-console", *_secret(access)]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        _check(url, head)
        body = bytearray()
        while chunk := await reader.read(_CHUNK):
            body += chunk
            if len(body) > MOST_BYTES:
                raise NoAnswer(f"{url} answers with more than {MOST_BYTES} bytes")
        return bytes(body)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _secret(access: Access) -> list[str]:
    if access.bearer_token:
        return [f"Authorization: Bearer {access.bearer_token}"]
    return [f"Authorization: Basic {b64encode(access.basic.encode()).decode()}"] if access.basic else []


def _check(url: str, head: list[str]) -> None:
    status = head[0].split(" ")[1:2]
    if status != [str(_OK)]:
        raise NoAnswer(f"{url} answers {head[0][:100]!r}")
    if any(line.lower().startswith("transfer-encoding:") for line in head):
        raise NoAnswer(f"{url} answers a request of HTTP/1.0 in chunks")
