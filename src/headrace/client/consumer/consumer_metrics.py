"""Counts what a consumer does: per Fetch, per poll, and per call of a slow method. Never per record."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from time import monotonic
from typing import TYPE_CHECKING

from headrace.client.metrics.connections import ConnectionMetrics, NodeMetrics
from headrace.client.metrics.method_times import MethodTimes
from headrace.client.metrics.registry import MetricsRegistry
from headrace.client.metrics.sensor import Sensor
from headrace.client.metrics.table import CONSUMER, FETCH, FETCH_TOPIC

if TYPE_CHECKING:
    from headrace.client.consumer.fetch_positions import FetchPositions
    from headrace.protocol.wire.consumer_fetch import FetchAnswer


class _TopicMetrics:
    """The sensors of one topic."""

    __slots__ = ("bytes", "records")

    def __init__(self, new: Callable[[], Sensor]) -> None:
        self.records, self.bytes = new(), new()


class ConsumerMetrics:
    """The sensors of one consumer."""

    def __init__(self, registry: MetricsRegistry, connections: ConnectionMetrics, positions: FetchPositions) -> None:
        self._registry = registry
        self._clock = registry.clock
        self._topics: dict[str, _TopicMetrics] = {}
        self._fetch_size, self._between_polls, self._idle = (registry.sensor() for _ in range(3))
        self.method_times = MethodTimes(registry, ("commit_sync", "committed"))
        self._positions = positions
        #: In seconds of monotonic time.
        self._poll_began: float | None = None
        self._since_last_poll = 0.0
        positions.on_taken = self._consumed
        registry.add(
            "metrics",
            CONSUMER,
            {
                **self.method_times.sensors,
                "between_polls": self._between_polls,
                "idle": self._idle,
                "last_poll": self._seconds_since_poll,
            },
        )
        registry.add(
            "fetch-manager-metrics",
            FETCH,
            {
                "throttle": connections.throttle,
                "latency": connections.latencies,
                "fetch_size": self._fetch_size,
                "records": lambda: [topic.records for topic in list(self._topics.values())],
                "bytes": lambda: [topic.bytes for topic in list(self._topics.values())],
                "lag_max": self._lag_max,
            },
        )

    # -- fetching

    def fetched(self, node: NodeMetrics | None, sent: float, answer: FetchAnswer) -> None:
        """
        :param sent: when the request was sent, in seconds of monotonic time.
        """
        now_ms = self._clock.monotonic_ms()
        if node is not None:
            node.latency.record((monotonic() - sent) * 1000, now_ms)
        self._fetch_size.record(sum(len(found.records) for _, found in answer.partitions), now_ms)

    def _consumed(self, topic: str, record_count: int, size_bytes: int) -> None:
        found = self._topics.get(topic)
        if found is None:
            found = _TopicMetrics(self._registry.sensor)
            sources = {"records": found.records, "bytes": found.bytes}
            self._registry.add("fetch-manager-metrics", FETCH_TOPIC, sources, topic=topic)
            self._topics[topic] = found
        now_ms = self._clock.monotonic_ms()
        found.records.record(record_count, now_ms)
        found.bytes.record(size_bytes, now_ms)

    def _lag_max(self) -> float:
        with self._positions.lock:
            lags = [self._positions.lag(partition) for partition in self._positions.assignment()]
        return max((lag for lag in lags if lag is not None), default=nan)

    # -- polls

    def poll_began(self) -> None:
        now = monotonic()
        self._since_last_poll = 0.0 if self._poll_began is None else now - self._poll_began
        self._between_polls.record(self._since_last_poll * 1000, self._clock.monotonic_ms())
        self._poll_began = now

    def poll_ended(self) -> None:
        if self._poll_began is not None:
            took = monotonic() - self._poll_began
            whole = took + self._since_last_poll
            if whole > 0:
                self._idle.record(took / whole, self._clock.monotonic_ms())

    def _seconds_since_poll(self) -> float:
        return -1 if self._poll_began is None else int(monotonic() - self._poll_began)
