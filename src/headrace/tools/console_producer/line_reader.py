"""Makes records of the lines of standard input, by the rules and properties of Kafka's LineMessageReader.

A line is ``headers TAB key TAB value``. It has headers with ``parse.headers``, and a key with ``parse.key``. Headers
are ``name:content,name:content``. With ``null.marker``, a key, value or header content that equals the marker is null.
A line that lacks a separator is an error; with ``ignore.error`` the whole line is the value. An empty text in place of
headers means no headers; Kafka's tool rejects that, or with ``ignore.error`` makes a header without a name.

Lines are bytes and stay unchanged. Only separators and header names must be UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.protocol.record_body import Headers

_DEFAULTS = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
}
#: Accepted and ignored, because lines stay bytes.
_WITHOUT_EFFECT = frozenset({"key.serializer", "value.serializer", "topic"})


class BadLine(ValueError):
    """The line lacks a part that it must have."""


class Line(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers


class LineReader:
    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        """
        :raises ValueError: if a property does not exist, or contradicts another property.
        """
        given = dict(properties or {})
        unknown = given.keys() - _DEFAULTS.keys() - _WITHOUT_EFFECT
        if unknown:
            raise ValueError(f"there is no reader property {min(unknown)}; there are {', '.join(_DEFAULTS)}")
        found = _DEFAULTS | given
        self._parses_key = _flag(found, "parse.key")
        self._parses_headers = _flag(found, "parse.headers")
        self._ignores_errors = _flag(found, "ignore.error")
        self._key_separator = found["key.separator"].encode()
        self._delimiter = found["headers.delimiter"].encode()
        self._separator = found["headers.separator"].encode()
        self._header_separator = found["headers.key.separator"].encode()
        self._null_marker = found["null.marker"].encode() or None
        self._number = 0
        self.is_plain = not (self._parses_key or self._parses_headers or self._null_marker)
        _check(found, self._parses_key, self._parses_headers)

    def parse(self, line: bytes) -> Line:
        """Makes a record of a line without its line end.

        :raises BadLine: if a part is missing.
        """
        self._number += 1
        headers: Headers = ()
        key: bytes | None = None
        rest = line
        if self._parses_headers:
            text, rest = self._split(rest, self._delimiter, "headers delimiter")
            if text:
                headers = tuple(map(self._header, text.split(self._separator)))
        if self._parses_key:
            key, rest = self._split(rest, self._key_separator, "key separator")
        return Line(self._unless_null(key), self._unless_null(rest), headers)

    def _split(self, text: bytes, separator: bytes, name: str) -> tuple[bytes | None, bytes]:
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignores_errors:
            return None, text
        raise BadLine(f"No {name} found on line number {self._number}: '{text.decode('utf-8', 'replace')}'")

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        name, found, content = pair.partition(self._header_separator)
        if not found and not self._ignores_errors:
            text = pair.decode("utf-8", "replace")
            raise BadLine(f"No header key separator found in pair '{text}' on line number {self._number}")
        if name == self._null_marker:
            raise BadLine(
                f"Header keys should not be equal to the null marker '{name.decode()}' as they can't be null"
                f" (line number {self._number})"
            )
        return name.decode("utf-8", "surrogateescape"), self._unless_null(content) if found else None

    def _unless_null(self, content: bytes | None) -> bytes | None:
        return None if content == self._null_marker else content


def without_end(line: bytes) -> bytes:
    """Removes the line end, as Java does: ``\\n`` or ``\\r\\n``."""
    if line.endswith(b"\n"):
        line = line[:-1]
    return line.removesuffix(b"\r")


def _flag(properties: Mapping[str, str], name: str) -> bool:
    return properties[name].strip().lower() == "true"


def _check(properties: Mapping[str, str], parses_key: bool, parses_headers: bool) -> None:
    used = ["key.separator"] if parses_key else []
    if parses_headers:
        used += ["headers.delimiter", "headers.separator", "headers.key.separator"]
    for name in used:
        if not properties[name]:
            raise ValueError(f"{name} may not be empty")
    # The delimiter of headers may equal the separator of the key: each is used once, from the left.
    pairs = [
        ("headers.delimiter", "headers.separator"),
        ("headers.delimiter", "headers.key.separator"),
        ("headers.separator", "headers.key.separator"),
    ]
    for first, second in pairs if parses_headers else ():
        if properties[first] == properties[second]:
            raise ValueError(f"{first} and {second} may not be equal")
    marker = properties["null.marker"]
    for name in used if marker else ():
        if properties[name] == marker:
            raise ValueError(f"null.marker and {name} may not be equal")
