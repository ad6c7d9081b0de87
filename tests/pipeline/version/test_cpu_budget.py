"""The time between the micro-batches of versions, by their cost."""

from __future__ import annotations

import pytest

from headrace.pipeline.version.cpu_budget import MAX_INTERVAL_MS, CpuBudget


def test_one_cheap_version_runs_as_often_as_it_asks_for():
    assert CpuBudget(cores=0.2).interval_ms("a", 200, cost_ms=15) == 200


def test_many_versions_share_the_budget():
    budget = CpuBudget(cores=0.2)
    for name in "abcdefgh":
        interval_ms = budget.interval_ms(name, 100, cost_ms=15)
    assert interval_ms == 8 * 15 / 0.2
    assert budget.interval_ms("i", 100, cost_ms=15) == 700, "a multiple of the trigger"


def test_other_versions_delay_an_answer_by_a_second_at_most():
    budget = CpuBudget(cores=0.2)
    for name in range(100):
        budget.interval_ms(name, 200, cost_ms=50)
    assert budget.interval_ms("last", 200, cost_ms=50) == MAX_INTERVAL_MS
    assert budget.interval_ms("odd", 300, cost_ms=50) == 900
    assert budget.interval_ms("slow", 5_000, cost_ms=50) == 5_000, "its own trigger may be longer"


def test_a_version_that_stops_or_becomes_cheap_leaves_its_part_to_the_others():
    budget = CpuBudget(cores=0.1)
    budget.interval_ms("a", 1, cost_ms=30)
    assert budget.interval_ms("b", 1, cost_ms=30) == 600
    for _ in range(40):
        budget.interval_ms("a", 1, cost_ms=1)
    assert budget.interval_ms("b", 1, cost_ms=30) == pytest.approx(310, abs=2)
    budget.forget("a")
    assert budget.interval_ms("b", 1, cost_ms=30) == 300
