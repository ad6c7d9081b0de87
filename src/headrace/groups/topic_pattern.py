"""Regular expressions that members subscribe with: RE2's syntax, matched in time linear in a topic's name (KIP-848).

An expression comes from a client and is run against every topic on the broker's only loop, so it may not backtrack.
It is compiled to an automaton after Thompson, whose sets of states become states of a deterministic one when they are
first met. Names of topics have 65 different characters; to the automaton a class is which of them it holds.

An expression matches a topic if it matches the whole name. Understood: literals and escapes, ``.``, classes (POSIX
names and ``\\d \\s \\w`` and their opposites too), groups of all kinds, ``|``, ``* + ? {n,m}`` (lazy ones match the
same), the anchors ``^ $ \\A \\z \\b \\B``, ``\\Q..\\E``, the flags ``i m s U``, and of Unicode's classes the general
categories (``\\pL``, ``\\p{Nd}``), not the scripts. Repeats go up to 1000, as in RE2; an expression that would need
more than 10,000 states is refused.
"""

import string
from collections.abc import Iterable
from functools import lru_cache
from unicodedata import category

from headrace.groups.topic_automaton import Automaton, Piece, asserting, either, one_after_another, one_of, repeat
from headrace.protocol.errors import InvalidRegularExpression

ALPHABET = string.ascii_letters + string.digits + "._-"
_ALL = frozenset(ALPHABET)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_MAX_REPEAT = 1000
_MAX_DEPTH = 100
#: Of the deterministic automaton, kept in memory for each expression.
_MAX_STEPS = 10_000

_CLASSES = {"d": frozenset(string.digits), "w": _WORD, "s": frozenset[str]()}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _ALL,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": frozenset(string.digits),
    "graph": _ALL,
    "lower": frozenset(string.ascii_lowercase),
    "print": _ALL,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
#: Of Unicode: major classes, and in which subclasses each falls.
_MAJORS = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES = frozenset(major + minor for major, minors in _MAJORS.items() for minor in ("", *minors))
_ESCAPED = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class TopicPattern:
    """A compiled expression."""

    def __init__(self, text: str, more_characters: Iterable[str] = ()) -> None:
        """
        :param more_characters: for names that may have others than topics have: those that they have. Named classes
            do not hold them; ``.`` and what is negated does.
        :raises InvalidRegularExpression: if it is none, or has what is not understood.
        """
        automaton = Automaton()
        start, self._end = _Parser(text, _ALL.union(more_characters)).parse()(automaton)
        self._edges = automaton.edges
        self._start = frozenset((start,))
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole of a topic's name."""
        states, before = self._start, ""
        for character in name:
            key = (states, before, character)
            following = self._steps.get(key)
            if following is None:
                if len(self._steps) >= _MAX_STEPS:
                    self._steps.clear()
                following = self._steps[key] = self._step(*key)
            if not following:
                return False
            states, before = following, "_" if character in _WORD else "."  # all that an assertion asks
        return self._end in self._reached(states, before, "")

    def among(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.matches(name))

    def _step(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        return frozenset(
            edge.to
            for state in self._reached(states, before, character)
            for edge in self._edges[state]
            if edge.characters is not None and character in edge.characters
        )

    def _reached(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Where one may be between two characters ("" at an end) without reading any."""
        reached, to_do = set(states), list(states)
        while to_do:
            for edge in self._edges[to_do.pop()]:
                if edge.characters is None and edge.to not in reached and _holds(edge.assertion, before, after):
                    reached.add(edge.to)
                    to_do.append(edge.to)
        return reached


def _holds(assertion: str, before: str, after: str) -> bool:
    if assertion == "^":
        return not before
    if assertion == "$":
        return not after
    if assertion in ("b", "B"):
        return ((before in _WORD) != (after in _WORD)) == (assertion == "b")
    return True


class _Parser:
    """Recursive descent over the expression; what it gives is how to build the automaton."""

    def __init__(self, text: str, alphabet: frozenset[str]) -> None:
        self._text = text
        self._alphabet = alphabet
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> Piece:
        piece = self._alternatives()
        if self._at < len(self._text):
            raise self._error("a ')' without its '('")
        return piece

    def _error(self, problem: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"{problem} in the regular expression {self._text!r}")

    def _take(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._error("something is missing at the end")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str, problem: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise self._error(problem)
        taken, self._at = self._text[self._at : found], found + len(end)
        return taken

    # -- structure

    def _alternatives(self) -> Piece:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else lambda automaton: either(automaton, branches)

    def _sequence(self) -> Piece:
        pieces: list[Piece] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            pieces.extend(self._quoted() if self._take("\\Q") else (self._repeated(self._atom()),))
        return lambda automaton: one_after_another(automaton, pieces)

    def _quoted(self) -> list[Piece]:
        end = self._text.find("\\E", self._at)
        literal = self._text[self._at : end if end >= 0 else None]
        self._at = len(self._text) if end < 0 else end + 2
        pieces = [self._characters(frozenset(character)) for character in literal]
        return [*pieces[:-1], self._repeated(pieces[-1])] if pieces else []  # a repeat is of the last character

    def _repeated(self, piece: Piece) -> Piece:
        bounds = self._bounds()
        if bounds is None:
            return piece
        self._take("?")  # lazy: the same names match
        if self._bounds() is not None:
            raise self._error("a repeat of a repeat")
        least, most = bounds
        return lambda automaton: repeat(automaton, piece, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        end = self._text.find("}", self._at)
        if not self._text.startswith("{", self._at) or end < 0:
            return None
        least_text, comma, most_text = self._text[self._at + 1 : end].partition(",")
        if not (least_text.isascii() and least_text.isdigit()) or not (most_text == "" or most_text.isdigit()):
            return None  # then a brace is a brace
        self._at = end + 1
        least = int(least_text)
        most = least if not comma else int(most_text) if most_text else None
        if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
            raise self._error("a repeat out of bounds")
        return least, most

    def _atom(self) -> Piece:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._characters(self._class())
        if character == ".":
            return one_of(self._alphabet)
        if character in "^$":
            return asserting(character)
        if character in "*+?":
            raise self._error("nothing to repeat")
        if character == "\\":
            return self._escape()
        return self._characters(frozenset(character))

    def _group(self) -> Piece:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("too many groups within each other")
        ignored_case = self._ignores_case
        if self._take("?") and self._flags():
            self._depth -= 1
            return lambda automaton: one_after_another(automaton, [])
        piece = self._alternatives()
        if not self._take(")"):
            raise self._error("a '(' without its ')'")
        self._ignores_case = ignored_case
        self._depth -= 1
        return piece

    def _flags(self) -> bool:
        """What follows ``(?``; True if that was all of the group, and holds until the end of the one around it."""
        if self._take("P<") or (not self._text.startswith(("<=", "<!"), self._at) and self._take("<")):
            name = self._until(">", "a group's name without its end")
            if not name.isidentifier():
                raise self._error("a group with a bad name")
            return False
        turns_on = True
        while True:
            flag = self._next()
            if flag in ":)":
                return flag == ")"
            if flag == "-" and turns_on:
                turns_on = False
            elif flag == "i":
                self._ignores_case = turns_on
            elif flag not in "msU":  # these change nothing for names on one line that match as a whole
                raise self._error("a group of a kind that RE2 does not have")

    # -- characters

    def _characters(self, characters: frozenset[str]) -> Piece:
        return one_of(_both_cases(characters) if self._ignores_case else characters)

    def _escape(self) -> Piece:
        if self._text.startswith(("A", "z", "b", "B"), self._at):
            sign = self._next()
            return asserting({"A": "^", "z": "$"}.get(sign, sign))
        found = self._escaped()
        return self._characters(found if isinstance(found, frozenset) else frozenset(found))

    def _escaped(self) -> frozenset[str] | str:
        """After a backslash: a class, or one character."""
        sign = self._next()
        if sign.lower() in _CLASSES:
            return _CLASSES[sign] if sign.islower() else self._alphabet - _CLASSES[sign.lower()]
        if sign in _ESCAPED:
            return _ESCAPED[sign]
        if sign == "x":
            return self._hexadecimal()
        if sign in "pP":
            return self._category(is_negated=sign == "P")
        if not sign.isalnum() and sign.isascii():
            return sign
        raise self._error(f"the escape \\{sign}")

    def _category(self, *, is_negated: bool) -> frozenset[str]:
        name = self._until("}", "an open \\p{") if self._take("{") else self._next()
        is_negated ^= name.startswith("^")
        name = name.removeprefix("^")
        if name not in _CATEGORIES:
            raise self._error("an unknown class of Unicode")
        found = frozenset(each for each in self._alphabet if category(each).startswith(name))
        return self._alphabet - found if is_negated else found

    def _hexadecimal(self) -> str:
        digits = self._until("}", "an open \\x{") if self._take("{") else self._next() + self._next()
        if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise self._error("a bad \\x")
        return chr(int(digits, 16))

    def _class(self) -> frozenset[str]:
        is_negated = self._take("^")
        characters: set[str] = set()
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            if self._take("[:"):
                characters |= self._posix(self._until(":]", "a class without its end"))
                continue
            low = self._class_character()
            if isinstance(low, frozenset):
                characters |= low
            elif self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                characters |= self._range(low, self._class_character())
            else:
                characters.add(low)
        if self._ignores_case:
            characters = set(_both_cases(characters))
        return frozenset(self._alphabet - characters if is_negated else characters)

    def _class_character(self) -> frozenset[str] | str:
        character = self._next()
        return self._escaped() if character == "\\" else character

    def _range(self, low: str, high: frozenset[str] | str) -> set[str]:
        if isinstance(high, frozenset) or high < low:
            raise self._error("a bad range")
        return {character for character in self._alphabet if low <= character <= high}

    def _posix(self, name: str) -> frozenset[str]:
        known = _POSIX.get(name.removeprefix("^"))
        if known is None:
            raise self._error("an unknown class")
        return self._alphabet - known if name.startswith("^") else known


def _both_cases(characters: Iterable[str]) -> frozenset[str]:
    return frozenset(each for character in characters for each in (character, character.lower(), character.upper()))


@lru_cache(maxsize=256)
def topic_pattern(text: str) -> TopicPattern:
    """
    :raises InvalidRegularExpression: if it is none.
    """
    return TopicPattern(text)
