"""Compares two brokers in alternating turns, on a machine that has neighbours.

The same round may take twice as long a minute later. So both brokers run at once, the sides take turns, and the best
round of each side counts, or the median where the best round would flatter. A disturbance of the machine affects both
sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import servers
from loads import Rate
from report import Table

S = TypeVar("S")
T = TypeVar("T")


def alternate(running: Mapping[str, S], load: Callable[[S], T], *, rounds: int) -> dict[str, list[T]]:
    """What each side did, round by round."""
    results: dict[str, list[T]] = {side: [] for side in running}
    for _ in range(rounds):
        for side, server in running.items():
            results[side].append(load(server))
    return results


def warm(running: Mapping[str, servers.Server], load: Callable[[servers.Server], object], *, rounds: int) -> None:
    """The JVM compiles what it will; Headrace has nothing to warm."""
    if "apache" in running:
        for _ in range(rounds):
            load(running["apache"])


def put_best_rates(table: Table, key: str, cpu_key: str, results: Mapping[str, list[Rate]]) -> None:
    for side, rates in results.items():
        best = max(rates, key=lambda rate: rate.per_second)
        table.put(side, key, best.per_second)
        table.put(side, cpu_key, best.broker_cpu_seconds)
