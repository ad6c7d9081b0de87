r"""Reads and writes files of Java properties (``server.properties``).

A line is ``name=value``; ``:`` or blanks separate the two as well. ``#`` and ``!`` begin a comment line. A line that
ends in an odd number of backslashes continues in the next line, whose leading blanks are dropped. ``\t``, ``\n``,
``\r``, ``\f`` and ``\uXXXX`` are escapes; a backslash before any other character stands for that character. If a name
appears twice, the last value counts. Files are read as UTF-8; Java reads them as Latin-1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from re import compile as regex

_BLANKS = " \t\f"
_LINE_END = regex(r"\r\n|\n|\r")
_HEX4 = regex(r"[0-9a-fA-F]{4}")
#: Characters that need no escape, wherever they stand.
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/,;[]\"'")
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class ConfigError(ValueError):
    """One or more settings are wrong. Each line of the message is about one of them."""

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else problems
        super().__init__("\n".join(self.problems))


def read_properties_file(path: Path) -> dict[str, str]:
    """Returns the settings in a file.

    :raises ConfigError: if the file cannot be read.
    """
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"Cannot read {path}: it is not UTF-8 text") from error


def parse_properties(text: str) -> dict[str, str]:
    """Returns the names and values of a properties text.

    :raises ConfigError: if a ``\\uXXXX`` has not four hexadecimal digits.
    """
    return dict(_split(line) for line in _logical_lines(text))


def to_properties(settings: Mapping[str, str]) -> str:
    """Returns a properties text that :func:`parse_properties`, and Java, read as these settings."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in settings.items())


def parse_overrides(options: list[str]) -> dict[str, str]:
    """Returns the names and values of ``key=value`` options of a command line.

    :raises ConfigError: if an option has no ``=``, or no key.
    """
    # The text is left out: it may be a secret.
    problems = [
        f"Invalid option -o number {number}: must be key=value"
        for number, option in enumerate(options, 1)
        if option.find("=") < 1
    ]
    if problems:
        raise ConfigError(problems)
    pairs = (option.split("=", 1) for option in options)
    return {name.strip(): value.strip() for name, value in pairs}


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    continues = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if not continues and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if continues else line
        if not continues:
            yield pending
            pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:end]), _unescape(rest)


def _escape(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if chr(code) in _PLAIN else f"\\u{code:04x}" for code in codes)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
        elif text[at + 1 : at + 2] == "u":
            code = text[at + 2 : at + 6]
            if _HEX4.fullmatch(code) is None:
                raise ConfigError("Invalid escape \\u in properties: write \\u and four hexadecimal digits")
            out.append(chr(int(code, 16)))
            at += 6
        else:
            out.append(_UNESCAPED.get(text[at + 1 : at + 2], text[at + 1 : at + 2]))
            at += 2
    joined = "".join(out)
    # Java writes a character beyond 16 bits as two escapes. This joins such pairs.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
