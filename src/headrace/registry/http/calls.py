"""Reads requests: the parts of a path, flags, numbers and bodies, with bounds."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote

from headrace.registry.errors import RegistryError, bad_request, unprocessable
from headrace.registry.names import DEFAULT_CONTEXT, MAX_NAME_CHARACTERS, checked_subject, local_name, with_context
from headrace.registry.queries import aliased
from headrace.registry.registry import Registry
from headrace.registry.state import RegistryState

MAX_BODY_BYTES = 2 << 20
_MAX_QUERY_FIELDS = 50
_TRUE = ("true", "1", "")
_MAX_INT = 2**31 - 1

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass
class Call:
    """A request to one route.

    :ivar parts: the variable parts of the path, by name.
    :ivar pairs: the names and values of the query, in order. A name may be in it more than once.
    :ivar context: from a path that begins with /contexts/CONTEXT.
    """

    registry: Registry
    parts: dict[str, str]
    pairs: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    context: str = DEFAULT_CONTEXT

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    @cached_property
    def query(self) -> dict[str, str]:
        return dict(self.pairs)

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.pairs if key == name]

    @property
    def subject(self) -> str:
        """The subject that the path names, or that the name is an alias of.

        :raises RegistryError: if the name is not valid.
        """
        return aliased(self.state, self._named)

    @property
    def _named(self) -> str:
        return checked_subject(with_context(self.context, self.parts["subject"]))

    @property
    def scope(self) -> str | None:
        """The subject of settings: a subject, a context (``:.context:``), or None for all subjects."""
        given = self.parts.get("subject")
        if given is None:
            return None if self.context == DEFAULT_CONTEXT else f":{self.context}:"
        if given.startswith(":.") and not local_name(given):
            name = given if given.endswith(":") else f"{given}:"
            return None if name == ":.:" else name[:MAX_NAME_CHARACTERS]
        return self._named

    def flag(self, *names: str) -> bool:
        return any(self.query.get(name, "false").lower() in _TRUE for name in names)

    def number(self, name: str, default: int) -> int:
        """
        :raises RegistryError: if it is not a whole number.
        """
        text = self.query.get(name, str(default))
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 10):
            raise unprocessable(f"{name} must be a whole number, not {text[:40]!r}")
        return max(-1, min(int(text), _MAX_INT))

    def json(self) -> dict[str, Any]:
        """
        :raises RegistryError: if the body is not a JSON object.
        """
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not JSON: {str(error)[:200]}") from None
        if not isinstance(found, dict):
            raise bad_request("the body is not a JSON object")
        return found


def path_segments(raw_path: bytes) -> list[str]:
    """The parts of a path. A subject may contain a slash, as ``%2F``.

    :raises RegistryError: if the path is not UTF-8.
    """
    try:
        parts = [unquote(part, errors="strict") for part in raw_path.decode("ascii").split("/")]
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None
    return [part for part in parts[1:] if part]


def query_pairs(query: bytes) -> list[tuple[str, str]]:
    """
    :raises RegistryError: if the query cannot be read.
    """
    try:
        return parse_qsl(
            query.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise bad_request(f"the query cannot be read: {str(error)[:100]}") from None


async def read_body(receive: Receive) -> bytes:
    """
    :raises RegistryError: if the body is too large. The rest of the body is not read.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise bad_request("the request ended early")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise RegistryError(413, f"the body of a request has at most {MAX_BODY_BYTES} bytes")
        if not message.get("more_body"):
            return bytes(body)
