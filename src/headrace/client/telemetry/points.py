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


class _LastPush(NamedTuple):
    """The time of a push, and the totals that the broker has by it."""

    wall_ms: int
    totals: dict[tuple[str, Labels], float]


class PointCollector:
    """Collects the points of each push, and knows what the pushes before have said.

    A push counts as arrived, unless the broker refuses it. If an answer is lost, the broker may miss a difference, but
    never counts one twice.
    """

    def __init__(self, started_wall_ms: int) -> None:
        self._nothing = self._last = self._before_last = _LastPush(started_wall_ms, {})

    def collect(self, metrics: Iterable[Measured], wanted: Subscription, wall_ms: int) -> list[Point]:
        """Returns the points that the subscription wants. Totals are differences if it wants that."""
        last, totals = self._last, dict(self._last.totals)
        points: list[Point] = []
        for metric in metrics:
            name = telemetry_name(metric.name)
            if not isfinite(metric.value) or not wanted.selects(name):
                continue
            labels = tuple((key.replace("-", "_"), value) for key, value in metric.name.tags if key != "client-id")
            value, since_wall_ms = metric.value, self._nothing.wall_ms
            if metric.is_sum and wanted.is_delta:
                totals[name, labels] = value
                value -= last.totals.get((name, labels), 0.0)
                since_wall_ms = last.wall_ms
            points.append(Point(name, labels, value, metric.is_sum, since_wall_ms))
        self._before_last, self._last = last, _LastPush(wall_ms, totals)
        return points

    def refused(self) -> None:
        """The broker has refused the last push. The next one contains its differences."""
        self._last = self._before_last

    def reset(self) -> None:
        """Forgets what was pushed, because the broker wants another kind of totals now."""
        self._last = self._before_last = self._nothing
