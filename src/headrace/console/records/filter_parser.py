"""Parses filters of records, such as ``value.amount > 100 and value.user = "ann"``, into functions.

Nothing is evaluated by Python itself: the parser knows the few things below, and anything else is an error with its
place.

::

    filter      = and_filter { "or" and_filter }
    and_filter  = not_filter { "and" not_filter }
    not_filter  = "not" not_filter | "(" filter ")" | test
    test        = operand [ comparison operand | "in" "(" literal { "," literal } ")" | "is" ["not"] "null" ]
    comparison  = "=" "==" "!=" "<>" "<" "<=" ">" ">=" "contains" "startswith" "endswith" "matches"
    operand     = path | literal
    path        = root { "." name | "[" number "]" | "[" text "]" } | { "." name }     the second begins in the value
    root        = "value" | "key" | "headers" | "partition" | "offset" | "timestamp" | "size"
    literal     = number | text in '' or "" | "true" | "false" | "null"

A field that does not exist is null. ``<`` and the like hold only between two numbers or two texts; ``!=`` is the
opposite of ``=``. A test that is only an operand holds if the operand is there, and neither false nor null.
``matches`` takes an expression of RE2 that may match anywhere in the text.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.console.records.expressions import compiled

LONGEST_FILTER = 2_000
_DEEPEST = 40
_Get = Callable[[Mapping[str, Any]], Any]
Filter = Callable[[Mapping[str, Any]], bool]

ROOTS = ("value", "key", "headers", "partition", "offset", "timestamp", "size")
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>==|!=|<>|<=|>=|[=<>()\[\].,]))""",
    re.VERBOSE,
)
_LONGEST_NUMBER = 40


class BadFilter(ValueError):
    """The filter cannot be parsed; the message says where and why."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The keyword, in lower case; a sign is its own keyword."""
        return self.text.lower() if self.kind in ("word", "sign") else ""


@dataclass(frozen=True)
class ParsedFilter:
    """A filter, and which parts of a record it needs."""

    holds: Filter
    roots: frozenset[str]


def parse_filter(text: str) -> ParsedFilter:
    """
    :raises BadFilter: if the text is no filter.
    """
    if len(text) > LONGEST_FILTER:
        raise BadFilter(f"the filter has more than {LONGEST_FILTER} characters")
    parser = _Parser(_tokens(text))
    holds = parser.either(0)
    parser.expect_end()
    return ParsedFilter(holds, frozenset(parser.roots))


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise BadFilter(f"at character {at + 1}: {text[at : at + 20].strip()!r} is not understood")
        kind = str(match.lastgroup)
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    return [*found, _Token("end", "the end", len(text))]


class _Parser:
    """Reads the tokens once, from left to right. Each method takes what the grammar above says."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.roots: set[str] = set()

    def either(self, depth: int) -> Filter:
        if depth > _DEEPEST:
            raise BadFilter(f"more than {_DEEPEST} parentheses are open")
        found = [self._both(depth)]
        while self._took("or"):
            found.append(self._both(depth))
        return found[0] if len(found) == 1 else lambda record: any(each(record) for each in found)

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong("'and' or 'or'")

    # -- parts

    def _both(self, depth: int) -> Filter:
        found = [self._negated(depth)]
        while self._took("and"):
            found.append(self._negated(depth))
        return found[0] if len(found) == 1 else lambda record: all(each(record) for each in found)

    def _negated(self, depth: int) -> Filter:
        is_negated = False
        while self._took("not"):
            is_negated = not is_negated
        if self._took("("):
            inner = self.either(depth + 1)
            self._expect(")")
        else:
            inner = self._test()
        return (lambda record: not inner(record)) if is_negated else inner

    def _test(self) -> Filter:
        left = self._operand()
        word = self._next.word
        if word in COMPARISONS:
            self._at += 1
            return _comparison(COMPARISONS[word], left, self._operand())
        if word == "matches":
            self._at += 1
            return _matching(left, self._expression())
        if self._took("in"):
            choices = self._choices()
            return lambda record: any(_equal(left(record), each) for each in choices)
        if self._took("is"):
            is_negated = self._took("not")
            self._expect("null")
            return lambda record: (left(record) is None) != is_negated
        return lambda record: left(record) not in (None, False)

    def _choices(self) -> list[Any]:
        self._expect("(")
        found = [self._literal()]
        while self._took(","):
            found.append(self._literal())
        self._expect(")")
        return found

    def _expression(self) -> Callable[[bytes], bool]:
        token = self._next
        if token.kind != "text":
            raise self._wrong("an expression in quotes")
        try:
            found = compiled(self._literal())
        except ValueError as error:
            raise BadFilter(f"at character {token.at + 1}: {error}") from None
        return found

    def _operand(self) -> _Get:
        if self._next.kind in ("number", "text") or self._next.word in _CONSTANTS:
            literal = self._literal()
            return lambda _: literal
        return self._path()

    def _literal(self) -> Any:
        token = self._next
        self._at += 1
        if token.kind == "number" and len(token.text) <= _LONGEST_NUMBER:
            return json.loads(token.text)
        if token.kind == "text":
            return _unquoted(token)
        if token.word in _CONSTANTS:
            return _CONSTANTS[token.word]
        self._at -= 1
        raise self._wrong("a number, a text, true, false or null")

    def _path(self) -> _Get:
        token = self._next
        steps: list[str | int] = []
        if token.word in ROOTS:
            root = token.word
            self._at += 1
        elif token.word == ".":
            root = "value"
        else:
            raise self._wrong(f"a path that begins with one of {', '.join(ROOTS)}")
        self.roots.add(root)
        while self._next.word in (".", "["):
            steps.append(self._step())
        if root == "headers" and not steps:
            raise self._wrong("the name of a header, as in headers.trace")
        return lambda record: _at(record[root], steps)

    def _step(self) -> str | int:
        if self._took("."):
            token = self._next
            if token.kind not in ("word", "text"):
                raise self._wrong("the name of a field")
            self._at += 1
            return token.text if token.kind == "word" else _unquoted(token)
        self._expect("[")
        step = self._literal()
        if isinstance(step, bool) or not isinstance(step, str | int):
            raise self._wrong("a whole number or a name")
        self._expect("]")
        return step

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _took(self, word: str) -> bool:
        if self._next.word != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise self._wrong(repr(word))

    def _wrong(self, wanted: str) -> BadFilter:
        token = self._next
        return BadFilter(f"at character {token.at + 1}: {token.text[:40]!r} stands where {wanted} is expected")


def _unquoted(token: _Token) -> str:
    """The text inside of the quotes. Escapes are those of JSON, and both quotes."""
    inside = token.text[1:-1]
    if token.text[0] == "'":
        inside = re.sub(r'\\.|"', lambda found: {'"': r"\"", r"\'": "'"}.get(found[0], found[0]), inside)
    else:
        inside = re.sub(r"\\.", lambda found: "'" if found[0] == r"\'" else found[0], inside)
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        raise BadFilter(f"at character {token.at + 1}: the text has an escape that JSON does not have") from None


def _at(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


# -- tests of two values

_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(left: Any, right: Any) -> bool:
    """Equality as JSON has it: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(left: Any, right: Any) -> bool:
        is_comparable = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
        return is_comparable and compare(left, right)

    return holds


def _contains(left: Any, right: Any) -> bool:
    if isinstance(left, str):
        return isinstance(right, str) and right in left
    return isinstance(left, list | dict) and any(_equal(each, right) for each in left)


def _of_texts(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: isinstance(left, str) and isinstance(right, str) and test(left, right)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": _equal,
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<>": lambda left, right: not _equal(left, right),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "contains": _contains,
    "startswith": _of_texts(str.startswith),
    "endswith": _of_texts(str.endswith),
}


def _comparison(compare: Callable[[Any, Any], bool], left: _Get, right: _Get) -> Filter:
    return lambda record: compare(left(record), right(record))


def _matching(left: _Get, matches: Callable[[bytes], bool]) -> Filter:
    def holds(record: Mapping[str, Any]) -> bool:
        value = left(record)
        return isinstance(value, str) and matches(value.encode("utf-8", "replace"))

    return holds
