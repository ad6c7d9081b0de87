r"""Files of Java properties (``server.properties``): read, and written by the same rules.

A line is ``name=value``; ``:`` or blanks separate as well. ``#`` and ``!`` begin a comment line. A line that ends in
an odd number of backslashes goes on in the next one, whose leading blanks are dropped. ``\t``, ``\n``, ``\r``, ``\f``
and ``\uXXXX`` are escapes; a backslash before anything else stands for that character. The last of two lines with one
name wins. Unlike Java we read UTF-8, not Latin-1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from re import compile as regex

_BLANKS = " \t\f"
_LINE_END = regex(r"\r\n|\n|\r")
_HEX4 = regex(r"[0-9a-fA-F]{4}")
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\", "=": "\\=", ":": "\\:"}


class ConfigError(ValueError):
    """One or more settings are wrong; each line of the message names one of them."""

    def __init__(self, problems: str | list[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else problems
        super().__init__("\n".join(self.problems))


def read_properties_file(path: Path) -> dict[str, str]:
    """The settings of a ``server.properties``; ConfigError with one line if it cannot be read."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"Cannot read {path}: it is not UTF-8 text") from error


def parse_properties(text: str) -> dict[str, str]:
    """The names and values of a properties text; raises ConfigError for a broken ``\\uXXXX``."""
    return dict(_split(line) for line in _logical_lines(text))


def format_properties(properties: Mapping[str, str]) -> str:
    """A properties text that reads back as the same names and values."""
    return "".join(f"{_escape_name(name)}={_escape_value(value)}\n" for name, value in properties.items())


def parse_overrides(options: list[str]) -> dict[str, str]:
    """``key=value`` options of a command line."""
    problems = [f"Invalid option {option!r}: must be key=value" for option in options if option.find("=") < 1]
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
                raise ConfigError(f"Invalid escape '\\u{code}' in properties: must be \\u and four hexadecimal digits")
            out.append(chr(int(code, 16)))
            at += 6
        else:
            out.append(_UNESCAPED.get(text[at + 1 : at + 2], text[at + 1 : at + 2]))
            at += 2
    joined = "".join(out)
    # Java writes a character beyond 16 bits as two escapes; put such pairs together again.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape_value(value: str) -> str:
    escaped = "".join(_ESCAPED.get(character, character) for character in value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape_name(name: str) -> str:
    escaped = "".join(_ESCAPED.get(character, character) for character in name).replace(" ", "\\ ")
    return "\\" + escaped if escaped[:1] in ("#", "!") else escaped
