"""Reads the bodies of requests: forms as browsers send them, and JSON objects. The size and the fields are bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import parse_qsl

from starlette.requests import Request

from headrace.console.problems import BadFields, ConsoleError

#: A form may carry the value of a record.
MAX_BODY_BYTES = 4 * 1024 * 1024
_MOST_FIELDS = 200
_FORM = "application/x-www-form-urlencoded"


class BodyTooLarge(ConsoleError):
    """The body has more bytes than the console reads."""

    status = 413
    name = "body_too_large"


async def read_form(request: Request) -> dict[str, str]:
    """
    :raises ConsoleError: if the body is no form, is too large, or has a field twice.
    """
    if not request.headers.get("content-type", "").startswith(_FORM):
        raise ConsoleError(f"the body must be a form ({_FORM})")
    body = await _read(request)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise ConsoleError(f"the form cannot be read: {str(error)[:100]}") from None
    return _unique(pairs)


async def read_object(request: Request) -> dict[str, str]:
    """Reads a JSON object of texts, numbers and booleans. They become texts, as in a form.

    :raises ConsoleError: if the body is something else.
    """
    try:
        found = json.loads(await _read(request) or b"{}")
    except (ValueError, RecursionError) as error:
        raise ConsoleError(f"the body is not JSON: {str(error)[:100]}") from None
    if not isinstance(found, dict):
        raise ConsoleError("the body is not a JSON object")
    return {name: _as_text(name, value) for name, value in found.items()}


def read_query(request: Request) -> dict[str, str]:
    """
    :raises ConsoleError: if the query cannot be read, or has a parameter twice.
    """
    try:
        pairs = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise ConsoleError(f"the query cannot be read: {str(error)[:100]}") from None
    return _unique(pairs)


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the body of a request has at most {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise BadFields({name[:100]: "it is given twice"})
        found[name] = value
    return found


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str | int):
        return str(value)
    raise BadFields({name[:100]: "it must be a text, a number or a boolean"})
