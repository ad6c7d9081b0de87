"""The costs of versions, from their metrics."""

from __future__ import annotations

from headrace.pipeline.runner.costs import EVERY_MS, Costs, cost_of
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.catalog_tables.version_costs import Cost, VersionCosts
from headrace.pipeline.version.metrics import PipelineMetrics, VersionCounts
from headrace.testing import ManualClock


def test_what_a_version_costs_between_two_moments():
    before = VersionCounts(events=100, micro_batches=10, micro_batch_seconds=1.0, cpu_seconds=0.5)
    now = VersionCounts(events=1_100, micro_batches=30, micro_batch_seconds=2.0, cpu_seconds=0.9)
    assert cost_of(before, now, 10.0) == Cost(busy=0.1, micro_batch_ms=50.0, records_per_s=100.0, cpu_cores=0.04)
    assert cost_of(now, now, 10.0) == Cost(busy=0.0, micro_batch_ms=0.0, records_per_s=0.0, cpu_cores=0.0)
    stream = VersionCounts(events=5, micro_batches=1, micro_batch_seconds=99.0)
    assert cost_of(VersionCounts(), stream, 10.0) == Cost(1.0, 99_000.0, 0.5), "CPU time is not known"


def test_costs_are_written_every_ten_seconds(database):
    Catalog(database)
    clock, metrics, stored = ManualClock(), PipelineMetrics(), VersionCosts(database)
    costs = Costs(stored, metrics, clock)
    metrics.micro_batch("pages", 1, seconds=1.0, events=500)
    costs.write([("pages", 1)])
    assert stored.read() == {}
    clock.advance(EVERY_MS)
    costs.write([("pages", 1)])
    assert stored.read() == {("pages", 1): Cost(0.1, 1000.0, 50.0)}
    clock.advance(EVERY_MS)
    costs.write([("pages", 1)])
    assert stored.read() == {("pages", 1): Cost(0.0, 0.0, 0.0)}
