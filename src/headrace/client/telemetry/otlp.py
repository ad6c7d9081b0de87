"""Encodes the points of a push as OTLP's ``MetricsData``, with opentelemetry-proto.

The import takes 100 ms, so only a client with a subscription imports this module, on a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

from headrace.client.telemetry.points import Point

_NS_PER_MS = 1_000_000


def encode(points: Iterable[Point], resource: Mapping[str, str], wall_ms: int, *, is_delta: bool) -> bytes:
    """
    :param resource: labels of the client itself, such as ``group_id``.
    :param wall_ms: the time of the values.
    """
    data = MetricsData()
    metrics = data.resource_metrics.add()
    for key, value in resource.items():
        metrics.resource.attributes.add(key=key).value.string_value = value
    scope = metrics.scope_metrics.add()
    kind = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    if is_delta:
        kind = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    by_name: dict[str, Metric] = {}
    for point in points:
        metric = by_name.get(point.name)
        if metric is None:
            metric = by_name[point.name] = scope.metrics.add(name=point.name)
        if point.is_sum:
            metric.sum.aggregation_temporality = kind
            metric.sum.is_monotonic = True
            made = metric.sum.data_points.add(start_time_unix_nano=point.since_wall_ms * _NS_PER_MS)
        else:
            made = metric.gauge.data_points.add()
        made.time_unix_nano = wall_ms * _NS_PER_MS
        made.as_double = point.value
        for key, value in point.labels:
            made.attributes.add(key=key).value.string_value = value
    encoded: bytes = data.SerializeToString()
    return encoded
