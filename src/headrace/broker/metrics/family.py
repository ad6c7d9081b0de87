"""A metric family: name, type, labels, meaning, and the function that reads its values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from headrace.broker.metrics.values import Value, View


class Kind(Enum):
    """The types of Prometheus. The name of a counter ends in ``_total``; a count with another name is untyped."""

    COUNTER = "counter"
    GAUGE = "gauge"
    UNTYPED = "untyped"


class Family(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[View], Iterable[Value]]


def gauge(name: str, meaning: str, values: Callable[[View], Iterable[Value]], *labels: str) -> Family:
    return Family(name, Kind.GAUGE, labels, meaning, values)


def counter(name: str, meaning: str, values: Callable[[View], Iterable[Value]], *labels: str) -> Family:
    return Family(name, Kind.COUNTER, labels, meaning, values)


def untyped(name: str, meaning: str, values: Callable[[View], Iterable[Value]], *labels: str) -> Family:
    return Family(name, Kind.UNTYPED, labels, meaning, values)
