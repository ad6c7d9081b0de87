"""Hides the values of fields, by the rules of ``--mask``, before anything else sees them.

A rule is a name. It hides each field of this name in a document, at any depth, and each header of this name. A text
inside a document that is JSON itself is searched too.

Bytes that are no document have no fields that a rule could find. If there is a rule, such bytes are shown only if they
are plain text that neither looks like a document nor contains the name of a rule. So a value that was cut, damaged, or
written in a format that the console cannot decode does not show what a rule hides.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.console.protection.audit import HIDDEN

CUT = "…"
_LOOKS_LIKE_JSON = ("{", "[", '"')
_LONGEST_NESTED = 1_000_000
_MOST_NESTING = 3


class Masks:
    """The rules of one console. Names count in upper or lower case."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def hides(self, name: str) -> bool:
        return name.lower() in self._names

    def hides_text(self, text: str) -> bool:
        """Whether a text that is no document must be hidden."""
        if not self._names:
            return False
        lower = text.lower()
        is_binary = any(character < " " and character not in "\t\r\n" for character in text)
        return is_binary or lower.lstrip("\ufeff \t\r\n").startswith(_LOOKS_LIKE_JSON) or self._is_named(lower)

    def document(self, document: Any, depth: int) -> Any:
        """The document as plain dicts, lists, texts and numbers, with masked fields hidden, and cut below a depth."""
        return self._copied(document, depth, 0)

    # -- parts

    def _is_named(self, lower: str) -> bool:
        return any(name in lower for name in self._names)

    def _copied(self, value: Any, depth: int, nesting: int) -> Any:
        if isinstance(value, Mapping):
            if depth <= 0:
                return CUT
            return {
                str(name): HIDDEN if self.hides(str(name)) else self._copied(each, depth - 1, nesting)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._copied(each, depth - 1, nesting) for each in value] if depth > 0 else CUT
        if value is None or isinstance(value, bool | int | float):
            return value
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
        return self._text(text, depth, nesting)

    def _text(self, text: str, depth: int, nesting: int) -> str:
        """A text inside a document. If it is a document itself, the fields of that count as well."""
        if not self._names:
            return text
        if not text.lstrip().startswith(_LOOKS_LIKE_JSON):
            return HIDDEN if self._is_named(text.lower()) else text
        if nesting >= _MOST_NESTING or len(text) > _LONGEST_NESTED:
            return HIDDEN
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            return HIDDEN
        shown = self._copied(inner, depth, nesting + 1)
        return text if shown == inner else json.dumps(shown, ensure_ascii=False)
