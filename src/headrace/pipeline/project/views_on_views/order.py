"""Orders views by what they read, and finds views that read each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Order(NamedTuple):
    """
    :ivar names: every view after those that it reads. Views of cycles, and views that read them, are missing.
    :ivar cycles: each as a path, ``["a", "b", "a"]``.
    """

    names: list[str]
    cycles: list[list[str]]


def order_of(reads: Mapping[str, Collection[str]]) -> Order:
    """
    :param reads: for each view, the views that its query names. Other names are ignored.
    """
    missing = {name: {each for each in reads[name] if each in reads} for name in sorted(reads)}
    names: list[str] = []
    while ready := [name for name, waits_for in missing.items() if not waits_for]:
        names += ready
        for name in ready:
            del missing[name]
        for waits_for in missing.values():
            waits_for.difference_update(ready)
    return Order(names, _cycles(missing))


def _cycles(missing: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Finds the cycles among views that each read another of these views: every walk ends in a cycle."""
    cycles: dict[frozenset[str], list[str]] = {}
    for name in missing:
        walk = [name]
        while (following := min(missing[walk[-1]])) not in walk:
            walk.append(following)
        cycle = walk[walk.index(following) :]
        first = cycle.index(min(cycle))
        cycles.setdefault(frozenset(cycle), [*cycle[first:], *cycle[:first], min(cycle)])
    return list(cycles.values())
