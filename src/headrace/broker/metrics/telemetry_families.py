"""Metrics about the telemetry of clients, and the metrics that clients have pushed (KIP-714).

The names of the first are those of Kafka's MBeans of the type ``client-metrics``, where Kafka has them. The others have
the clients' own names (``telemetry/names.py``), and labels that tell clients apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from headrace.broker.metrics.family import counter, gauge
from headrace.broker.metrics.values import Value, View, in_turns, steady
from headrace.broker.telemetry.points import Distribution, PointKind
from headrace.broker.telemetry.series import PushedFamily, families
from headrace.broker.telemetry.telemetry import Telemetry

_MEANING = "Pushed by clients (KIP-714)."


def _one(read: Callable[[Telemetry], float]) -> Callable[[View], Iterator[Value]]:
    def values(view: View) -> Iterator[Value]:
        yield (), read(view.sources.telemetry)

    return values


TELEMETRY = (
    gauge(
        "kafka_server_client_metrics_instance_count",
        "Client instances that have asked for a subscription or pushed metrics, and are not silent for too long.",
        _one(lambda telemetry: len(telemetry.instances)),
    ),
    counter(
        "kafka_server_client_metrics_plugin_export_total",
        "Pushes of metrics that the broker has accepted.",
        _one(lambda telemetry: telemetry.counts.pushes),
    ),
    counter(
        "kafka_server_client_metrics_plugin_error_total",
        "Pushes of metrics that the broker could not decode, or that were too large after decompression.",
        _one(lambda telemetry: telemetry.counts.failed_pushes),
    ),
    counter(
        "kafka_server_client_metrics_throttle_total",
        "Telemetry requests that came before the push interval of the client was over.",
        _one(lambda telemetry: telemetry.counts.throttled),
    ),
    counter(
        "kafka_server_client_metrics_unknown_subscription_request_total",
        "Pushes of metrics with the id of an earlier subscription.",
        _one(lambda telemetry: telemetry.counts.unknown_subscriptions),
    ),
    gauge(
        "kafka_server_client_metrics_series",
        "Series that clients have pushed and that this endpoint serves.",
        _one(lambda telemetry: telemetry.series.count),
    ),
    counter(
        "kafka_server_client_metrics_dropped_points_total",
        "Points of pushes that were dropped, because there were too many series (`headrace.telemetry.max.series`).",
        _one(lambda telemetry: telemetry.series.dropped),
    ),
)


def pushed_metrics(telemetry: Telemetry) -> Iterator[Metric]:
    """Yields the metrics that clients have pushed, in a steady order."""
    for family in families(in_turns(steady(telemetry.series.clients))):
        metric = Metric(family.name, _MEANING, family.kind.value)
        metric.samples = cast(list[Sample], _Samples(family))
        yield metric


class _Samples:
    """The samples of a family, made one by one while they are written."""

    def __init__(self, family: PushedFamily) -> None:
        self._family = family

    def __iter__(self) -> Iterator[Sample]:
        name = self._family.name + ("_total" if self._family.kind is PointKind.COUNTER else "")
        for labels, value in in_turns(self._family.samples):
            if isinstance(value, Distribution):
                yield from _buckets(name, labels, value)
            else:
                yield Sample(name, labels, value)


def _buckets(name: str, labels: dict[str, str], value: Distribution) -> Iterator[Sample]:
    """Yields the samples of a histogram. The count of a bucket includes all smaller buckets."""
    count = 0.0
    for bound, inside in zip((*value.bounds, float("inf")), value.bucket_counts, strict=True):
        count += inside
        yield Sample(f"{name}_bucket", {**labels, "le": _bound_text(bound)}, count)
    yield Sample(f"{name}_sum", labels, value.total)
    yield Sample(f"{name}_count", labels, value.point_count)


def _bound_text(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
