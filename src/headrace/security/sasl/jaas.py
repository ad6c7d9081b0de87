"""Kafka's JAAS lines, parsed as data.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="x" user_alice="y";
    MODULE                                                  FLAG     OPTION=VALUE ...                             ;

A line names a Java class. Headrace never loads anything by such a name: the name is only compared with a table
(:data:`MODULES`), and any other module is refused. Loading classes that a configuration names has been a hole in Kafka
several times (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819).

The rules are those of Java's StreamTokenizer, as Kafka sets it up: values may stand in double or single quotes, with
backslash escapes (``\\"``, ``\\\\``, ``\\n``, octal ``\\101``); without quotes a value ends at a space or a semicolon;
``//`` and ``/* */`` are comments. A semicolon ends an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.properties import ConfigError
from headrace.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

_COMMON = "org.apache.kafka.common.security"
#: The login modules of Kafka that Headrace knows, with their mechanisms.
MODULES = {
    f"{_COMMON}.plain.PlainLoginModule": (PLAIN,),
    f"{_COMMON}.scram.ScramLoginModule": (SCRAM_SHA_256, SCRAM_SHA_512),
    f"{_COMMON}.oauthbearer.OAuthBearerLoginModule": (OAUTHBEARER,),
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_USER_OPTION = "user_"
#: A line is a setting of this process, but clients of other processes may pass it on.
_MAX_LINE_LENGTH = 1024 * 1024

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<symbol>[=;])
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module. The options are not shown, because most of them are secrets."""

    module: str
    flag: str
    options: dict[str, str] = field(repr=False)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return MODULES[self.module]

    @property
    def users(self) -> dict[str, str]:
        """The passwords by user, of the options ``user_NAME="password"``."""
        return {
            name.removeprefix(_USER_OPTION): value
            for name, value in self.options.items()
            if name.startswith(_USER_OPTION)
        }


class _Token(NamedTuple):
    text: str
    #: Whether the token is an equals sign or a semicolon outside of quotes.
    is_symbol: bool


def parse_jaas(line: str, setting: str = "sasl.jaas.config") -> JaasEntry:
    """Parses a line with one login module.

    :raises ConfigError: if the line is malformed, or names a module that Headrace does not have. The error names the
        setting, and shows no option.
    """
    if len(line) > _MAX_LINE_LENGTH:
        raise ConfigError(f"{setting} is longer than {_MAX_LINE_LENGTH} characters")
    entries = list(_entries(_Reader(line, setting)))
    if len(entries) != 1:
        raise ConfigError(f"{setting} has to name one login module, and names {len(entries)}")
    return entries[0]


def jaas_for(line: str, mechanism: str, setting: str = "sasl.jaas.config") -> JaasEntry:
    """Parses a line that has to fit a mechanism.

    :raises ConfigError: if the line is malformed, or its login module is not the module of the mechanism.
    """
    entry = parse_jaas(line, setting)
    if mechanism not in entry.mechanisms:
        raise ConfigError(f"{setting} names {entry.module}, which is not the login module of {mechanism}")
    return entry


def _entries(reader: _Reader) -> Iterator[JaasEntry]:
    while not reader.is_at_end:
        module = reader.word("a login module")
        if module not in MODULES:
            # Another text than a class may be a secret in the wrong place.
            name = f"the login module {module!r}" if module.endswith("LoginModule") else "a login module"
            raise ConfigError(
                f"{reader.setting} names {name} that Headrace does not have. "
                f"There are {', '.join(MODULES)} (for the mechanisms {', '.join(MECHANISMS)})"
            )
        flag = reader.word("a flag such as required").lower()
        if flag not in _FLAGS:
            raise ConfigError(f"{reader.setting} has to have one of {', '.join(_FLAGS)} after the login module")
        options: dict[str, str] = {}
        while not reader.takes(";"):
            name = reader.word("an option")
            if not reader.takes("="):
                raise ConfigError(f"{reader.setting} has an option without '=', or no ';' at its end")
            options[name] = reader.word("a value")
        yield JaasEntry(module, flag, options)


class _Reader:
    """The tokens of a line, one after the other."""

    def __init__(self, line: str, setting: str) -> None:
        self.setting = setting
        self._tokens = list(self._split(line))
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._tokens)

    def takes(self, symbol: str) -> bool:
        """Skips the symbol if it comes next."""
        found = not self.is_at_end and self._tokens[self._position] == _Token(symbol, is_symbol=True)
        self._position += found
        return found

    def word(self, expected: str) -> str:
        """Returns the next word or quoted text."""
        if self.is_at_end or self._tokens[self._position].is_symbol:
            end = "ends" if self.is_at_end else f"has a {self._tokens[self._position].text!r}"
            raise ConfigError(f'{self.setting} {end} where {expected} has to be; write MODULE FLAG NAME="VALUE" ...;')
        self._position += 1
        return self._tokens[self._position - 1].text

    def _split(self, line: str) -> Iterator[_Token]:
        position = 0
        while position < len(line):
            found = _TOKEN.match(line, position)
            if found is None:
                raise ConfigError(f"{self.setting} has a quote that does not end")
            position = found.end()
            quoted = found["double"] if found["double"] is not None else found["single"]
            if quoted is not None:
                yield _Token(_unescaped(quoted), is_symbol=False)
            elif found["space"] is None:
                yield _Token(found[0], is_symbol=found["symbol"] is not None)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_replacement, text)


def _replacement(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
