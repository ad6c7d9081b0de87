"""Runs the simulator: many seeds must pass, and deliberate mistakes must be caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutations import MUTATIONS

from headrace.broker.handlers import produce
from headrace.log.early_write import begin_early_write
from headrace.testing.simulator.__main__ import memory_disk
from headrace.testing.simulator.simulation import simulate

_SEEDS = int(os.environ.get("HEADRACE_SIMULATIONS", "200"))
_PARTS = 8
#: Most mistakes are caught by the first or second seed, a stale controller by one seed in three.
_SEEDS_PER_MISTAKE = 60

pytestmark = pytest.mark.timeout(900)


def run_simulator(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.testing.simulator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_is_lost_whatever_happens(part):
    size = _SEEDS // _PARTS
    ended = run_simulator(part * size, size)
    assert ended.returncode == 0, (
        f"replay with: python -m headrace.testing.simulator SEED\n{ended.stdout}{ended.stderr}"
    )
    assert ended.stdout.count(" 0 faults") == size


def test_a_seed_is_always_the_same():
    first, second = (run_simulator(7).stdout.splitlines() for _ in range(2))
    assert len(first) > 5
    assert [line.partition(", took")[0] for line in first] == [line.partition(", took")[0] for line in second]


@pytest.mark.parametrize("seed", range(6))
def test_logins_between_brokers_and_of_clients_change_nothing(seed, tmp_path):
    folder = Path(memory_disk() or tmp_path) / f"headrace-logins-{os.getpid()}-{seed}"
    folder.mkdir()
    try:
        result = simulate(seed, folder, has_logins=True)
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    assert result.faults == []
    assert len(result.history.acknowledged) > 100


# The disk of a crashed broker refuses what the handlers of the broker still do when they are freed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(6))
def test_batches_that_are_written_early_change_nothing(seed, tmp_path, monkeypatch):
    """Only large batches are written before they are appended. Here all batches count as large."""
    monkeypatch.setattr(produce, "LARGE_BATCH_BYTES", 0)
    begun = []
    monkeypatch.setattr(produce, "begin_early_write", lambda *a: begun.append(a) or begin_early_write(*a))
    folder = Path(memory_disk() or tmp_path) / f"headrace-early-{os.getpid()}-{seed}"
    folder.mkdir()
    try:
        result = simulate(seed, folder)
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    assert result.faults == []
    assert len(begun) > 100


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_deliberate_mistake_is_caught(name, monkeypatch, tmp_path):
    MUTATIONS[name](monkeypatch)
    for seed in range(_SEEDS_PER_MISTAKE):
        folder = Path(memory_disk() or tmp_path) / f"headrace-mistake-{os.getpid()}-{seed}"
        try:
            folder.mkdir()
            if not simulate(seed, folder).has_passed:
                return
        finally:
            subprocess.run(["rm", "-rf", str(folder)], check=True)
    pytest.fail(f"{_SEEDS_PER_MISTAKE} seeds have not caught the mistake")
