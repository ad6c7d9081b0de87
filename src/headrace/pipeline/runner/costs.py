"""Measures what each version costs, over ten seconds at a time, from the metrics of the versions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.pipeline.serving.catalog import VersionKey
from headrace.pipeline.serving.catalog_tables.version_costs import Cost, VersionCosts
from headrace.pipeline.version.metrics import PipelineMetrics, VersionCounts
from headrace.runtime.clock import Clock

EVERY_MS = 10_000


class Costs:
    """Used by the runner's thread only."""

    def __init__(self, stored: VersionCosts, metrics: PipelineMetrics, clock: Clock) -> None:
        self._stored, self._metrics, self._clock = stored, metrics, clock
        self._began_ms = clock.monotonic_ms()
        self._before: dict[VersionKey, VersionCounts] = {}
        self._written: dict[VersionKey, Cost] = {}

    def write(self, running: Collection[VersionKey]) -> None:
        """Writes the costs that changed, every ten seconds. Called at the end of each round.

        :param running: the versions that run in this process.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._began_ms < EVERY_MS:
            return
        seconds = (now_ms - self._began_ms) / 1000
        counts = {key: replace(self._metrics.of(*key)) for key in running}
        costs = {key: cost_of(self._before.get(key, VersionCounts()), counts[key], seconds) for key in running}
        changed = {key: cost for key, cost in costs.items() if cost != self._written.get(key)}
        self._began_ms, self._before = now_ms, counts
        if changed:
            self._stored.write(changed)
            self._written = costs


def cost_of(before: VersionCounts, now: VersionCounts, seconds: float) -> Cost:
    """Returns the cost of a version between two moments."""
    batches = now.micro_batches - before.micro_batches
    busy_s = now.micro_batch_seconds - before.micro_batch_seconds
    cpu_s = now.cpu_seconds - before.cpu_seconds
    return Cost(
        busy=round(min(1.0, busy_s / seconds), 4),
        micro_batch_ms=round(busy_s * 1000 / batches, 1) if batches else 0.0,
        records_per_s=round((now.events - before.events) / seconds, 1),
        cpu_cores=round(cpu_s / seconds, 4) if now.cpu_seconds else None,
    )
