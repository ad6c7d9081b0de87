r"""``ssl.principal.mapping.rules``: the user name that a certificate's distinguished name stands for.

The setting is a list of rules with commas between them. The first rule that applies decides; if none applies, the
connection fails. ``DEFAULT`` applies always, and the user name is the distinguished name.
``RULE:PATTERN/REPLACEMENT/[LU]`` applies if the pattern matches the whole distinguished name. Then every match of the
pattern in the name is replaced, and the result becomes lower (L) or upper (U) case. In the replacement ``$1`` is the
first group; a number without such a group is text; a backslash makes the next character text. Inside a pattern or a
replacement, ``\/`` stands for a slash, and a comma needs no escape. Text that is no rule is refused.
A ``$`` that can never name a group is refused at the start; Kafka fails at the first such connection.

Patterns run on RE2, because the distinguished name comes from the peer: matching takes time linear in the name.
Backreferences and lookarounds do not exist there, and are refused at the start.
"""

from __future__ import annotations

from re import compile as regex
from typing import Any, NamedTuple

from headrace.properties import ConfigError

NAME = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"

#: A longer setting is refused before RE2 compiles it.
_MAX_CHARACTERS = 32_768

_RULE_TEXT = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = regex(rf"\s*({_RULE_TEXT})\s*(,\s*|$)")
_RULE = regex(_RULE_TEXT)


_DIGITS = frozenset("0123456789")


class NoMatchingRule(ValueError):
    """No rule applies to the name of a peer."""


class _Rule(NamedTuple):
    """A rule. ``pattern`` is None in the rule DEFAULT."""

    pattern: Any
    replacement: tuple[str | int, ...]
    case: str


class MappingRules:
    """The rules of one setting."""

    def __init__(self, text: str) -> None:
        """
        :raises ConfigError: if a rule is not valid.
        """
        if len(text) > _MAX_CHARACTERS:
            raise ConfigError(f"Invalid value for configuration {NAME}: it has more than {_MAX_CHARACTERS} characters")
        self._rules = tuple(rule for item in _split(text) if (rule := _parse(item)) is not None)

    def user_name(self, distinguished_name: str) -> str:
        """Returns the user name of a distinguished name.

        :raises NoMatchingRule: if no rule applies.
        """
        for rule in self._rules:
            name = _apply(rule, distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRule(f"No rule of {NAME} applies to {distinguished_name}")


def _split(text: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(text.strip())]


def _parse(text: str) -> _Rule | None:
    match = _RULE.match(text)
    assert match is not None
    if match.end() != len(text):
        raise ConfigError(f"Invalid value for configuration {NAME}: {text[match.end() :]!r} in {text!r} is no rule")
    if match[1] is not None:
        return _Rule(None, (), "")
    if match[2] is None:
        return None
    pattern = _compiled(match[2])
    return _Rule(pattern, _replacement(match[3], pattern.groups), match[4])


def _compiled(pattern: str) -> Any:
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = (
            error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        )
        raise ConfigError(
            f"Invalid value for configuration {NAME}: {pattern!r} is no pattern of RE2: {reason}"
        ) from None


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """Splits a replacement into texts and numbers of groups."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            parts.append(text[at + 1])
            at += 2
        elif char == "$":
            if text[at + 1 : at + 2] not in _DIGITS or (groups == 0 and text[at + 1] != "0"):
                raise ConfigError(f"Invalid value for configuration {NAME}: '$' without a group in {text!r}")
            number, at = _group_number(text, at + 1, groups)
            parts.append(number)
        else:
            parts.append(char)
            at += 1
    return tuple(parts)


def _group_number(text: str, at: int, groups: int) -> tuple[str | int, int]:
    """Reads the number of a group as Java does: as many digits as give a group that exists."""
    number = int(text[at])
    if number > groups:
        return f"${text[at]}", at + 1
    at += 1
    while at < len(text) and text[at] in _DIGITS and number * 10 + int(text[at]) <= groups:
        number = number * 10 + int(text[at])
        at += 1
    return number, at


def _apply(rule: _Rule, name: str) -> str | None:
    if rule.pattern is None:
        return name
    if rule.pattern.fullmatch(name) is None:
        return None
    # As in Java, every match is replaced: a pattern that can be empty matches once more at the end of the name.
    out: list[str] = []
    end = 0
    for match in rule.pattern.finditer(name):
        out.append(name[end : match.start()])
        out += [part if isinstance(part, str) else match.group(part) or "" for part in rule.replacement]
        end = match.end()
    result = "".join(out) + name[end:]
    return result.lower() if rule.case == "L" else result.upper() if rule.case == "U" else result
