"""Prints the lines of ``headrace dump-log``, as text for people or as JSON for programs."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

Fields = Mapping[str, object]


class OptionalLong:
    """A number that may be missing, printed as Kafka's tool prints it."""

    def __init__(self, number: int | None) -> None:
        self.number = number

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.number is None else f"OptionalLong[{self.number}]"


class Json:
    """An object that is printed as JSON in the text output too."""

    def __init__(self, content: object) -> None:
        self.content = content

    def __str__(self) -> str:
        return json.dumps(self.content, separators=(",", ":"), ensure_ascii=False)


class DumpOutput:
    """Prints lines. Names and values are those of Kafka's tool, in text and in JSON."""

    def __init__(self, lines: TextIO, complaints: TextIO, *, as_json: bool) -> None:
        self._lines = lines
        self._complaints = complaints
        self.as_json = as_json
        self._file = ""
        self.faults = 0

    def begin(self, path: Path) -> None:
        self._file = str(path)
        self.say(f"Dumping {path}")

    def say(self, text: str) -> None:
        """For people only."""
        if not self.as_json:
            self._lines.write(f"{text}\n")

    def entry(self, kind: str, fields: Fields) -> None:
        if self.as_json:
            content = {"file": self._file, "type": kind} | {name: json_value(value) for name, value in fields.items()}
            self._lines.write(f"{json.dumps(content)}\n")
        else:
            indent = "| " if kind == "record" else ""
            self._lines.write(f"{indent}{' '.join(f'{name}: {_text(value)}' for name, value in fields.items())}\n")

    def fault(self, reason: str) -> None:
        self.faults += 1
        self.note(reason)

    def note(self, reason: str) -> None:
        # Flush the results first, so that the order is right if both streams go to one place.
        self._lines.flush()
        self._complaints.write(f"headrace dump-log: {self._file}: {reason}\n")


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode("utf-8", "replace")
        case list():
            return f"[{','.join(map(_text, value))}]"
    return str(value)


def json_value(value: object) -> object:
    match value:
        case OptionalLong():
            return value.number
        case Json():
            return value.content
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": b64encode(value).decode()}
        case str():
            # A header key that is not UTF-8 has lone surrogates, which other JSON readers reject.
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        case list():
            return [json_value(item) for item in value]
    return value
