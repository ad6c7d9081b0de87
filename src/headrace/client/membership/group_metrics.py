"""Counts what a consumer does in its group: requests to the coordinator, rebalances, and the user's callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from headrace.client.metrics.registry import MetricsRegistry, Source
from headrace.client.metrics.table import COORDINATOR

_TIMED = ("commit", "heartbeat", "join", "sync", "on_assigned", "on_revoked", "on_lost")


class GroupMetrics:
    """The sensors of one consumer's membership."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._timed = {name: registry.sensor() for name in _TIMED}
        self._rebalance, self._failed = registry.sensor(), registry.sensor()
        #: In seconds of monotonic time; None before the first.
        self._rebalance_began: float | None = None
        self._last_rebalance: float | None = None
        self._last_heartbeat: float | None = None

    def publish(self, assigned: Callable[[], int]) -> None:
        """Adds the metrics to the registry. A consumer without a group has none of them.

        :param assigned: returns the number of assigned partitions.
        """
        sources: dict[str, Source] = {
            **self._timed,
            "assigned": assigned,
            "rebalance": self._rebalance,
            "failed": self._failed,
            "last_rebalance": lambda: _seconds_since(self._last_rebalance),
            "last_heartbeat": lambda: _seconds_since(self._last_heartbeat),
        }
        self._registry.add("coordinator-metrics", COORDINATOR, sources)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measures a request until its response, or a callback until its end. An exception does not count."""
        begun = monotonic()
        if name == "heartbeat":
            self._last_heartbeat = begun
        yield
        self._timed[name].record((monotonic() - begun) * 1000, self._clock.monotonic_ms())

    def rebalance_began(self) -> None:
        """Notes the start of a rebalance. The attempts of one rebalance count together."""
        if self._rebalance_began is None:
            self._rebalance_began = monotonic()

    def rebalance_ended(self) -> None:
        if self._rebalance_began is not None:
            self._last_rebalance = monotonic()
            took_ms = (self._last_rebalance - self._rebalance_began) * 1000
            self._rebalance_began = None
            self._rebalance.record(took_ms, self._clock.monotonic_ms())

    def rebalance_failed(self) -> None:
        self._failed.record(1, self._clock.monotonic_ms())


def _seconds_since(moment: float | None) -> float:
    return -1 if moment is None else int(monotonic() - moment)
