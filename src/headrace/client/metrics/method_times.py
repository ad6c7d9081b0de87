"""Measures how long calls of slow methods take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic_ns

from headrace.client.metrics.registry import MetricsRegistry


class MethodTimes:
    """The sensors of whole methods, which add up nanoseconds.

    :ivar sensors: by the name of a method.
    """

    def __init__(self, registry: MetricsRegistry, names: Iterable[str]) -> None:
        self._clock = registry.clock
        self.sensors = {name: registry.sensor() for name in names}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        begun_ns = monotonic_ns()
        try:
            yield
        finally:
            self.sensors[name].record(monotonic_ns() - begun_ns, self._clock.monotonic_ms())
