"""Finds the line and the characters of each value in a TOML text: for messages and for ``--update``.

``tomllib`` gives no positions. The scanner reads a text that ``tomllib`` has accepted, so it checks nothing. A path
names a value as the parsed document does: ``("test", 0, "step", 1, "rows", 2, "total")``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

Path = tuple[str | int, ...]
_SPACE, _BARE_END = " \t", ",]}\n#\r"


class Span(NamedTuple):
    """The characters of a value: from ``start`` up to ``end``."""

    start: int
    end: int


@dataclass
class Places:
    """:ivar spans: of values; of a table with a header, those of the header."""

    lines: dict[Path, int] = field(default_factory=dict)
    spans: dict[Path, Span] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """The line of a value, or of the nearest table or list around it that has a place."""
        found = (self.lines.get(path[:length]) for length in range(len(path), 0, -1))
        return next((line for line in found if line is not None), None)


def toml_places(text: str) -> Places:
    """
    :param text: valid TOML.
    """
    return _Scanner(text).document()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._newlines = [at for at, character in enumerate(text) if character == "\n"]
        self._places = Places()
        #: How many tables each array of tables has so far.
        self._counts: dict[Path, int] = {}

    def document(self) -> Places:
        table: Path = ()
        while self._skip_blank():
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._assignment(table)
        return self._places

    def _header(self) -> Path:
        start, is_array = self._at, self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        path: Path = ()
        names = self._keys()
        for name in names[:-1]:
            path = self._inside((*path, name))
        path = (*path, names[-1])
        self._skip(_SPACE)
        self._at += 2 if is_array else 1
        if is_array:
            self._mark(path, start)
            self._counts[path] = self._counts.get(path, 0) + 1
            path = self._inside(path)
        self._mark(path, start)
        return path

    def _inside(self, path: Path) -> Path:
        """The path of a table, or of the last table of an array."""
        return (*path, self._counts[path] - 1) if path in self._counts else path

    def _assignment(self, table: Path) -> None:
        start = self._at
        names = self._keys()
        path = table
        for name in names:
            path = (*path, name)
            self._mark(path, start)
        self._skip(_SPACE)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            start = self._at
            if self._text[start] in "\"'":
                self._string()
                names.append(self._text[start + 1 : self._at - 1])
            else:
                while self._text[self._at].isalnum() or self._text[self._at] in "_-":
                    self._at += 1
                names.append(self._text[start : self._at])
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _value(self, path: Path) -> None:
        start = self._at
        first = self._text[start]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            while self._at < len(self._text) and self._text[self._at] not in _BARE_END:
                self._at += 1
        end = start + len(self._text[start : self._at].rstrip())
        self._mark(path, start)
        self._places.spans[path] = Span(start, end)

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._skip_blank() and self._text[self._at] != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._value((*path, index))
            index += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._skip_blank() and self._text[self._at] != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._assignment(path)
        self._at += 1

    def _string(self) -> None:
        quote = self._text[self._at]
        if self._text.startswith(quote * 3, self._at):
            self._at += 3
            while not self._text.startswith(quote * 3, self._at):
                self._at += 2 if quote == '"' and self._text[self._at] == "\\" else 1
            self._at += 3
            while self._text.startswith(quote, self._at):  # up to two quotes may stand before the closing ones
                self._at += 1
            return
        self._at += 1
        while self._text[self._at] != quote:
            self._at += 2 if quote == '"' and self._text[self._at] == "\\" else 1
        self._at += 1

    def _skip(self, characters: str) -> None:
        while self._at < len(self._text) and self._text[self._at] in characters:
            self._at += 1

    def _skip_blank(self) -> bool:
        """Skips spaces, line ends and comments; False at the end of the text."""
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif character in " \t\r\n":
                self._at += 1
            else:
                return True
        return False

    def _mark(self, path: Path, at: int) -> None:
        self._places.lines.setdefault(path, bisect_right(self._newlines, at - 1) + 1)
        self._places.spans.setdefault(path, Span(at, self._at))


def without_indexes(path: Path) -> str:
    """The path for messages: ``test.step.rows``."""
    return ".".join(part for part in path if isinstance(part, str))


__all__ = ["Path", "Places", "Span", "toml_places", "without_indexes"]
