"""Turns a client's metrics into the data points of one push, under the names of KIP-714.

``producer-node-metrics``, ``request-latency-avg`` becomes ``org.apache.kafka.producer.node.request.latency.avg``. Tags
become labels with underscores. The label ``client_id`` is left out, because the broker knows it. A metric without a
value (NaN) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import NamedTuple

from headrace.client.metrics.registry import Measured, MetricName
from headrace.client.telemetry.subscription import Subscription

_DOMAIN = "org.apache.kafka"
Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value of one metric."""

    name: str
    labels: Labels
    value: float
    is_sum: bool
    #: What a sum is about: the time from here to the push.
    since_wall_ms: int


def telemetry_name(name: MetricName) -> str:
    """Returns the name by which KIP-714 knows a metric."""
    group = name.group.lower().replace("-", ".").replace(".metrics", "")
    return f"{_DOMAIN}.{group}.{name.name.lower().replace('-', '.')}"


class PointCollector:
    """Collects the points of each push, and knows what the last push that a broker accepted has said."""

    def __init__(self, started_wall_ms: int) -> None:
        self._started_wall_ms = started_wall_ms
        #: The totals in the last accepted push, and its time.
        self._accepted: dict[tuple[str, Labels], float] = {}
        self._accepted_wall_ms = started_wall_ms
        self._pushed: dict[tuple[str, Labels], float] = {}
        self._pushed_wall_ms = started_wall_ms

    def collect(self, metrics: Iterable[Measured], wanted: Subscription, wall_ms: int) -> list[Point]:
        """Returns the points that the subscription wants. Totals are differences if it wants that."""
        self._pushed, self._pushed_wall_ms = {}, wall_ms
        points: list[Point] = []
        for metric in metrics:
            name = telemetry_name(metric.name)
            if not isfinite(metric.value) or not wanted.selects(name):
                continue
            labels = tuple((key.replace("-", "_"), value) for key, value in metric.name.tags if key != "client-id")
            value, since_wall_ms = metric.value, self._started_wall_ms
            if metric.is_sum and wanted.is_delta:
                self._pushed[name, labels] = value
                value -= self._accepted.get((name, labels), 0.0)
                since_wall_ms = self._accepted_wall_ms
            points.append(Point(name, labels, value, metric.is_sum, since_wall_ms))
        return points

    def accepted(self) -> None:
        """The broker has accepted the last push. The next differences count from there."""
        self._accepted.update(self._pushed)
        self._accepted_wall_ms = self._pushed_wall_ms

    def reset(self) -> None:
        """Forgets what was pushed, because the broker wants another kind of totals now."""
        self._accepted, self._accepted_wall_ms = {}, self._started_wall_ms
