"""The automaton that a topic pattern is compiled to: after Thompson, from pieces with one way in and one way out.

A piece is a function that builds a fresh copy of itself: a repeat needs several. How it is run is in
``topic_pattern.py``.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.protocol.errors import InvalidRegularExpression

_MAX_STATES = 10_000


class Edge(NamedTuple):
    """Out of a state: for one of these characters, or (None) for none at all, if the assertion holds there."""

    to: int
    characters: frozenset[str] | None = None
    assertion: str = ""


class Fragment(NamedTuple):
    start: int
    end: int


Piece = Callable[["Automaton"], Fragment]


class Automaton:
    def __init__(self) -> None:
        self.edges: list[list[Edge]] = []

    def state(self) -> int:
        if len(self.edges) >= _MAX_STATES:
            raise InvalidRegularExpression("the expression is too large")
        self.edges.append([])
        return len(self.edges) - 1

    def link(self, start: int, end: int, characters: frozenset[str] | None = None, assertion: str = "") -> None:
        self.edges[start].append(Edge(end, characters, assertion))

    def single(self, characters: frozenset[str] | None, assertion: str = "") -> Fragment:
        fragment = Fragment(self.state(), self.state())
        self.link(*fragment, characters, assertion)
        return fragment


def one_of(characters: frozenset[str]) -> Piece:
    return lambda automaton: automaton.single(characters)


def asserting(assertion: str) -> Piece:
    return lambda automaton: automaton.single(None, assertion)


def one_after_another(automaton: Automaton, pieces: Iterable[Piece]) -> Fragment:
    start = end = automaton.state()
    for piece in pieces:
        fragment = piece(automaton)
        automaton.link(end, fragment.start)
        end = fragment.end
    return Fragment(start, end)


def either(automaton: Automaton, branches: Iterable[Piece]) -> Fragment:
    start, end = automaton.state(), automaton.state()
    for branch in branches:
        fragment = branch(automaton)
        automaton.link(start, fragment.start)
        automaton.link(fragment.end, end)
    return Fragment(start, end)


def repeat(automaton: Automaton, piece: Piece, least: int, most: int | None) -> Fragment:
    start = end = automaton.state()
    for _ in range(least):
        fragment = piece(automaton)
        automaton.link(end, fragment.start)
        end = fragment.end
    if most is None:
        loop = piece(automaton)
        automaton.link(end, loop.start)
        automaton.link(loop.end, loop.start)
        last = automaton.state()
        automaton.link(end, last)
        automaton.link(loop.end, last)
        return Fragment(start, last)
    last = automaton.state()
    automaton.link(end, last)
    for _ in range(most - least):
        fragment = piece(automaton)
        automaton.link(end, fragment.start)
        end = fragment.end
        automaton.link(end, last)
    return Fragment(start, last)
