"""Counts the answered requests of a coordination service, and keeps the latest times for quantiles."""

from __future__ import annotations

from collections import deque

#: How many times are kept.
_SAMPLE = 256


class RequestTimes:
    """How many requests were answered, and how long the latest ones took."""

    __slots__ = ("count", "recent_ns")

    def __init__(self) -> None:
        self.count = 0
        self.recent_ns: deque[int] = deque(maxlen=_SAMPLE)

    def add(self, took_ns: int) -> None:
        self.count += 1
        self.recent_ns.append(took_ns)
