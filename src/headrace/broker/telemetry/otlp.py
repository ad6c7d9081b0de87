"""Decodes the metrics that a client pushes: OTLP's ``MetricsData`` (opentelemetry-proto), compressed or not.

The bytes come from a client, so decoding is bounded. Decompression stops at a limit. protobuf holds the interpreter's
lock while it parses, and makes 30 bytes of objects for each byte of empty messages: 4 MiB of them took 280 ms and
135 MB. So this module splits the outer messages itself, down to single metrics, and protobuf parses only messages of
bounded size::

    MetricsData      1 ResourceMetrics*
    ResourceMetrics  1 Resource, 2 ScopeMetrics*
    ScopeMetrics     2 Metric*

:func:`decode_push` runs on a thread. It sleeps for a moment after every few metrics, so that the event loop can run.
protobuf is imported with the first push, because the import takes 100 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.broker.telemetry.names import label_name, label_value, metric_name
from headrace.broker.telemetry.points import Distribution, Labels, Point, PointKind
from headrace.protocol.compression import decompress
from headrace.protocol.errors import InvalidRecord, MessageTooLarge, TelemetryTooLarge
from headrace.protocol.records import Codec
from headrace.protocol.wire.varints import LARGEST_OF_PROTOBUF, PROTOBUF_LAST_SHIFT, BadVarint, read_uvarint

if TYPE_CHECKING:
    from types import ModuleType

MAX_DECOMPRESSED_BYTES = 8 * 1024 * 1024
#: A larger metric, or a larger resource, is refused.
_MAX_MESSAGE_BYTES = 256 * 1024
#: Further metrics of a push, and further points, are ignored.
_MAX_METRICS, MAX_POINTS = 10_000, 5_000
#: A push with more fields around its metrics is refused.
_MAX_FIELDS = 20_000
_MAX_LABELS = 32
_METRICS_PER_TURN, _REST_SECONDS = 50, 0.0001

_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}
_DELTA = 1
_NO_RECORDED_VALUE = 1


def decode_push(codec: int, data: bytes, limit_bytes: int, asks_for: Callable[[str], bool]) -> list[Point]:
    """Returns the points of a push, without metrics that the broker has not asked for.

    :param asks_for: tells whether the broker has asked for a metric, given OTLP's name of the metric.
    :raises TelemetryTooLarge: if the metrics are larger than the limit.
    :raises KafkaError: if the bytes are not metrics.
    """
    try:
        plain = decompress(Codec(codec), data, limit_bytes=limit_bytes)
    except MessageTooLarge:
        raise TelemetryTooLarge(f"the metrics have more than {limit_bytes} bytes after decompression") from None
    points: list[Point] = []
    for number, (metric, resource_labels) in enumerate(_OuterMessages().metrics(memoryview(plain)), 1):
        if number > _MAX_METRICS or len(points) >= MAX_POINTS:
            break
        if asks_for(metric.name):
            points += _points(metric, resource_labels)
        if number % _METRICS_PER_TURN == 0:
            time.sleep(_REST_SECONDS)
    return points[:MAX_POINTS]


# -- the outer messages


class _OuterMessages:
    """Splits the messages around the metrics. It reads a bounded number of fields, because a field takes two bytes."""

    def __init__(self) -> None:
        self._fields_left = _MAX_FIELDS

    def metrics(self, data: memoryview) -> Iterator[tuple[Any, Labels]]:
        """Yields every metric, with the labels of its resource."""
        for number, resource_metrics in self._split(data):
            if number != 1:
                continue
            inner = list(self._split(resource_metrics))
            resources = [_parsed("Resource", message) for field, message in inner if field == 1]
            labels = _labels(resources[-1].attributes) if resources else ()
            for field, scope_metrics in inner:
                if field == 2:
                    for kind, metric in self._split(scope_metrics):
                        if kind == 2:
                            yield _parsed("Metric", metric), labels

    def _split(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yields the number and the content of each field of a message that may be a message itself.

        :raises InvalidRecord: if the bytes are not a message of protobuf.
        :raises TelemetryTooLarge: if there are too many fields.
        """
        position = 0
        while position < len(data):
            self._fields_left -= 1
            if self._fields_left < 0:
                raise TelemetryTooLarge(f"the metrics have more than {_MAX_FIELDS} parts")
            tag, position = _varint(data, position)
            wire_type = tag & 7
            if wire_type == _LENGTH_DELIMITED:
                size, position = _varint(data, position)
                if size > len(data) - position:
                    raise InvalidRecord("a message of the metrics is longer than the metrics")
                yield tag >> 3, data[position : position + size]
                position += size
            elif wire_type in _FIXED_BYTES:
                position += _FIXED_BYTES[wire_type]
            elif wire_type == 0:
                _, position = _varint(data, position)
            else:
                raise InvalidRecord(f"the metrics have a field of the unknown type {wire_type}")
        if position > len(data):
            raise InvalidRecord("the metrics end inside a field")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    try:
        return read_uvarint(data, position, LARGEST_OF_PROTOBUF, PROTOBUF_LAST_SHIFT)
    except IndexError:
        raise InvalidRecord("the metrics end inside a number") from None
    except BadVarint:
        raise InvalidRecord("a number in the metrics has more than ten bytes") from None


def _parsed(kind: str, message: memoryview) -> Any:
    if len(message) > _MAX_MESSAGE_BYTES:
        raise TelemetryTooLarge(f"a {kind} has {len(message)} bytes, more than {_MAX_MESSAGE_BYTES}")
    metrics, resource, error = _library()
    try:
        return getattr(resource if kind == "Resource" else metrics, kind).FromString(bytes(message))
    except error as problem:
        raise InvalidRecord(f"a {kind} cannot be decoded: {problem}") from None


@cache
def _library() -> tuple[ModuleType, ModuleType, type[Exception]]:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.metrics.v1 import metrics_pb2
    from opentelemetry.proto.resource.v1 import resource_pb2

    return metrics_pb2, resource_pb2, DecodeError


# -- a metric


def _points(metric: Any, resource_labels: Labels) -> Iterator[Point]:
    """Yields the points of a gauge, a sum or a histogram. Clients of Kafka send no other kinds; they are ignored."""
    name = metric_name(metric.name)
    if metric.HasField("gauge"):
        for point in _recorded(metric.gauge.data_points):
            yield Point(name, PointKind.GAUGE, _joined(resource_labels, point), _number(point), False)
    elif metric.HasField("sum"):
        kind = PointKind.COUNTER if metric.sum.is_monotonic else PointKind.GAUGE
        is_delta = metric.sum.aggregation_temporality == _DELTA
        for point in _recorded(metric.sum.data_points):
            yield Point(name, kind, _joined(resource_labels, point), _number(point), is_delta)
    elif metric.HasField("histogram"):
        is_delta = metric.histogram.aggregation_temporality == _DELTA
        for point in _recorded(metric.histogram.data_points):
            if len(point.bucket_counts) != len(point.explicit_bounds) + 1:
                raise InvalidRecord("the bounds and the buckets of a histogram do not fit together")
            value = Distribution(point.count, point.sum, (*point.explicit_bounds,), (*point.bucket_counts,))
            yield Point(name, PointKind.HISTOGRAM, _joined(resource_labels, point), value, is_delta)


def _recorded(points: Iterable[Any]) -> Iterator[Any]:
    return (point for point in points if not point.flags & _NO_RECORDED_VALUE)


def _number(point: Any) -> float:
    return float(point.as_int if point.HasField("as_int") else point.as_double)


def _joined(resource_labels: Labels, point: Any) -> Labels:
    own = _labels(point.attributes)
    return tuple(sorted({**dict(resource_labels), **dict(own)}.items())) if resource_labels else own


def _labels(attributes: Iterable[Any]) -> Labels:
    """Returns attributes as labels, sorted by name. Attributes that are lists or mappings are left out."""
    labels: dict[str, str] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "double_value", "bool_value") and len(labels) < _MAX_LABELS:
            labels[label_name(attribute.key)] = label_value(getattr(attribute.value, kind))
    return tuple(sorted(labels.items()))
