"""Holds the sensors of one client, and reads them as metrics with Kafka's names.

A part of a client adds a table and the sensors that the table's rows read. Nothing happens until somebody reads: then
each row becomes one metric per statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.client.config import ClientConfig
from headrace.client.metrics.sensor import Reading, Sensor, Window, read_all
from headrace.client.metrics.table import GAUGE, Row
from headrace.runtime.clock import Clock, SystemClock


class MetricName(NamedTuple):
    """The name of a metric, as in Java: a group, a name, and tags such as ``("topic", "orders")``, sorted."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.group}:{self.name}{{{', '.join(f'{key}={value}' for key, value in self.tags)}}}"


class Metrics(dict[MetricName, float]):
    """The metrics of a client at one moment. An average or a maximum of nothing is NaN, as in Java."""

    def value(self, name: str, group: str | None = None, /, **tags: str) -> float:
        """Returns one metric. Tags are given with underscores: ``node_id="node-1"``.

        Without a tag, the metric of the whole client is meant, not that of a topic or of a broker.

        :raises KeyError: if there is no such metric, or more than one.
        """
        wanted = {key.replace("_", "-"): value for key, value in tags.items()}
        found = [
            one
            for one in self
            if one.name == name
            and group in (None, one.group)
            and {key: value for key, value in one.tags if key != "client-id" or key in wanted} == wanted
        ]
        if len(found) != 1:
            near = ", ".join(sorted({str(one) for one in self if one.name == name})) or "none has this name"
            raise KeyError(f"{len(found)} metrics are {name} with the tags {wanted}: {near}")
        return self[found[0]]


class Measured(NamedTuple):
    """One metric with its value."""

    name: MetricName
    value: float
    #: Whether the value only grows.
    is_sum: bool


#: What a row reads: one sensor, several as if they were one, or a function for a gauge.
Source = Sensor | Callable[[], Iterable[Sensor]] | Callable[[], float]


class _Part(NamedTuple):
    group: str
    table: Iterable[Row]
    sources: Mapping[str, Source]
    tags: tuple[tuple[str, str], ...]


class MetricsRegistry:
    """The metrics of one client."""

    def __init__(
        self,
        kind: str,
        client_id: str = "",
        *,
        clock: Clock | None = None,
        window: Window = Window(),  # noqa: B008
    ) -> None:
        """
        :param kind: the first word of the groups: ``producer``, ``consumer`` or ``admin-client``.
        """
        self.kind = kind
        self.clock: Clock = clock or SystemClock()
        self.started_wall_ms = self.clock.wall_ms()
        self._client_id = client_id
        self._window = window
        self._parts: list[_Part] = []

    def sensor(self) -> Sensor:
        return Sensor(self._window)

    def add(self, group: str, table: Iterable[Row], sources: Mapping[str, Source], **tags: str) -> None:
        """Adds the metrics of a table.

        :param group: without the kind of client: ``metrics``, ``node-metrics``, ...
        :param sources: the sensors and functions of the rows, by the names in the table.
        """
        named = {"client-id": self._client_id, **{key.replace("_", "-"): value for key, value in tags.items()}}
        self._parts = [*self._parts, _Part(f"{self.kind}-{group}", table, sources, tuple(sorted(named.items())))]

    def read(self) -> Iterator[Measured]:
        """Returns all metrics. May be called on any thread."""
        now_ms = self.clock.monotonic_ms()
        for part in self._parts:
            readings: dict[str, Reading] = {}
            for row in part.table:
                source = part.sources[row.source]
                if row.stats is GAUGE:
                    assert not isinstance(source, Sensor)
                    value = source()
                    assert isinstance(value, int | float)
                    yield Measured(MetricName(part.group, row.name, part.tags), value, is_sum=False)
                    continue
                reading = readings.get(row.source)
                if reading is None:
                    reading = readings[row.source] = self._reading(source, now_ms)
                for stat in row.stats:
                    name = MetricName(part.group, row.name + stat.ending, part.tags)
                    yield Measured(name, stat.of(reading), stat.is_sum)

    def _reading(self, source: Source, now_ms: float) -> Reading:
        if isinstance(source, Sensor):
            return source.read(now_ms)
        sensors = source()
        assert not isinstance(sensors, int | float)
        return read_all(sensors, self._window, now_ms)

    def metrics(self) -> Metrics:
        return Metrics((one.name, one.value) for one in self.read())


def new_registry(kind: str, config: ClientConfig, clock: Clock | None = None) -> MetricsRegistry:
    """Makes the registry of a client with these options."""
    window = Window(config.metrics_num_samples, config.metrics_sample_window_ms)
    return MetricsRegistry(kind, config.client_id, clock=clock, window=window)
