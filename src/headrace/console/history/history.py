"""Gives pages the samples: the last one, rates, and lines over the last hours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.console.broker_metrics.measured import Measured
from headrace.console.broker_metrics.source import metrics_source
from headrace.console.cluster.reader import ClusterReader
from headrace.console.history.sample import Sample, TopicRates, measure_of_total, measure_of_version
from headrace.console.history.sampler import ReadMeasures, Sampler
from headrace.console.history.series import Series, Unit, at_times, rates, time_lags, values
from headrace.console.history.store import Row, Store
from headrace.console.settings import Settings
from headrace.runtime.clock import Clock

#: The times that a page can show, by their names.
SPANS_MS = {"15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000}

#: The lines of the totals that the brokers' metrics tell.
_BROKER_LINES: Mapping[str, tuple[str, Unit]] = {
    "requests": ("Requests answered", "requests per second"),
    "produce_p99": ("p99 of Produce, slowest broker", "milliseconds"),
    "fetch_p99": ("p99 of consumers' Fetch with waiting, slowest broker", "milliseconds"),
    "bytes_in": ("Bytes received by brokers", "bytes per second"),
    "bytes_out": ("Bytes sent to consumers", "bytes per second"),
}


class GroupLines(NamedTuple):
    """The progress of a group in a topic."""

    read: Series
    lag: Series
    time_lag: Series


class History:
    """The samples of one console. Without a client that may sample, there are none, and all lines are empty."""

    def __init__(
        self, settings: Settings, clock: Clock, reader: ClusterReader | None, views: ReadMeasures | None = None
    ) -> None:
        """
        :param reader: the cluster as the sampler may see it; None: nothing is sampled.
        :param views: reads the measures of the views; None if there is no project.
        :raises ConfigError: if the file of the samples cannot be used.
        """
        self._clock = clock
        self._store = Store(settings.data)
        self.sampler: Sampler | None = None
        if reader is not None:
            metrics = metrics_source(settings.metrics, clock)
            self.sampler = Sampler(reader, self._store, clock, settings.sample_seconds, metrics, views)
        self._has_metrics = settings.metrics.is_given
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to sample."""
        if self.sampler is not None:
            self._running = asyncio.create_task(self.sampler.run())

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        self._store.close()

    @property
    def latest(self) -> Sample | None:
        """The last sample; None if there is none yet."""
        return None if self.sampler is None else self.sampler.latest

    @property
    def measured(self) -> Measured | None:
        """The last reading of the brokers' metrics; None if they were not read."""
        return None if self.sampler is None else self.sampler.measured

    def rates(self, topic: str) -> TopicRates | None:
        """How fast a topic grows now; None if it is not known."""
        return None if self.sampler is None else self.sampler.rates(topic)

    async def cluster_lines(self, span: str) -> tuple[Series, ...]:
        """Lines of the whole cluster.

        :param span: a key of ``SPANS_MS``.
        """
        since_ms = self._since(span)
        rows = await asyncio.to_thread(self._store.totals, since_ms)
        records, size, read, lag, offline, under_replicated, disk = (
            [(row[0], row[column]) for row in rows] for column in range(1, 8)
        )
        unwell = [(time_ms, some + more) for (time_ms, some), (_, more) in zip(offline, under_replicated, strict=True)]
        return (
            rates("Records written", "records per second", records),
            rates("Bytes written", "bytes per second", size),
            rates("Records read by groups", "records per second", read),
            values("Lag of all groups", "records", lag),
            values("Bytes on disk, all replicas", "bytes", disk),
            values("Offline and under-replicated", "partitions", unwell),
            *(await self._broker_lines([row[0] for row in rows], since_ms)),
        )

    async def _broker_lines(self, times: list[int], since_ms: int) -> list[Series]:
        """Lines of what the brokers' metrics tell; none if the console does not know where the metrics are."""
        if not self._has_metrics:
            return []
        return [
            values(title, unit, at_times(times, await self._measure(measure_of_total(total), since_ms), 1))
            for total, (title, unit) in _BROKER_LINES.items()
        ]

    async def _measure(self, name: str, since_ms: int) -> list[Row]:
        return await asyncio.to_thread(self._store.measure, name, since_ms)

    async def topic_lines(self, topic: str, span: str) -> tuple[Series, ...]:
        """Lines of a topic. The caller checks that the visitor may see the topic."""
        since_ms = self._since(span)
        times = await asyncio.to_thread(self._store.times, since_ms)
        rows = await asyncio.to_thread(self._store.topic, topic, since_ms)
        return (
            rates("Records written", "records per second", at_times(times, rows, 1)),
            rates("Bytes written", "bytes per second", at_times(times, rows, 2)),
            values("Size", "bytes", at_times(times, rows, 2)),
        )

    async def group_lines(self, group: str, topic: str, span: str) -> GroupLines:
        """Lines of the progress of a group in a topic. The caller checks that the visitor may see both."""
        since_ms = self._since(span)
        times = await asyncio.to_thread(self._store.times, since_ms)
        rows = await asyncio.to_thread(self._store.group, group, topic, since_ms)
        written = await asyncio.to_thread(self._store.topic, topic, since_ms)
        lags = at_times(times, rows, 2)
        ages = time_lags(times, at_times(times, written, 1), lags)
        return GroupLines(
            rates(f"Records of {topic} read by {group}", "records per second", at_times(times, rows, 1)),
            values(f"Lag of {group} in {topic}", "records", lags),
            values(f"Time lag of {group} in {topic}, estimated", "milliseconds", ages),
        )

    async def view_lines(self, view: str, versions: Iterable[int], span: str) -> tuple[Series, ...]:
        """Lines of the age and the lag of versions of a view."""
        since_ms = self._since(span)
        times = await asyncio.to_thread(self._store.times, since_ms)
        lines: list[Series] = []
        for version in versions:
            ages = await self._measure(measure_of_version(view, version, "age"), since_ms)
            behind = await self._measure(measure_of_version(view, version, "behind"), since_ms)
            lines += [
                values(f"Age of v{version}", "milliseconds", at_times(times, ages, 1)),
                values(f"Lag of v{version}", "records", at_times(times, behind, 1)),
            ]
        return tuple(lines)

    def _since(self, span: str) -> int:
        return self._clock.wall_ms() - SPANS_MS[span]
