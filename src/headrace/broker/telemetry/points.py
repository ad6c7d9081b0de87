"""The values of pushed metrics: ``otlp.py`` decodes them, ``series.py`` stores them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class PointKind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Distribution(NamedTuple):
    """The value of a histogram: the upper bounds of all buckets but the last, and the count of each bucket."""

    point_count: float
    total: float
    bounds: tuple[float, ...]
    bucket_counts: tuple[float, ...]


class Point(NamedTuple):
    """One value of one series. The name and the labels are as Prometheus allows them."""

    name: str
    kind: PointKind
    labels: Labels
    value: float | Distribution
    #: Whether the value is the change since the last push, and not the value itself.
    is_delta: bool
