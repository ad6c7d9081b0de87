"""Measures the cost of a delay: Headrace's timer and asyncio's ``call_later``, with more and more delays pending.

Two loads, each with N delays pending throughout, all between 1 and 60 seconds:

- *set and cancel*: a new delay is set and cancelled at once, as when a request is answered before its timeout;
- *replace*: the delay that was set longest ago is cancelled and a new one set, as with heartbeats and idle timers.

Both sides do the same operations in the same run, with the garbage collector as Python sets it, and the loop of
asyncio gets its turns (every 1,000 operations), because it is there that it drops cancelled delays. Costs are processor
time. On a machine with other work the same code costs up to twice as much from one moment to the next, whatever the
number of pending delays, so that each cell is measured in many short samples over three passes through all sizes. The
table shows the least sample; rare clean-ups and collections, which only asyncio's side has, are mostly not in it. The
lines below it give the growth by the least and by the median sample. The medians tell how disturbed the run was.

The bar: ours flat within 1.5 × over all sizes from 1,000 to 1,000,000, and below asyncio's at 1,000,000.

    .venv/bin/python bench/timers.py [--most 1000000]
"""

import argparse
import asyncio
import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headrace.runtime.clock import SystemClock
from headrace.runtime.timer import Timer

PASSES = 3
SAMPLES = 12
SAMPLE_OPERATIONS = 20_000
TURN_OPERATIONS = 1_000
COUNTS = [1_000, 10_000, 100_000, 1_000_000]

#: By number of pending delays and by column of the table.
Samples = dict[int, dict[str, list[float]]]


class Cancellable(Protocol):
    def cancel(self) -> None: ...


Schedule = Callable[[int], Cancellable]


def _nothing() -> None:
    pass


class Load:
    """N pending delays, and the two ways of using them."""

    def __init__(self, schedule: Schedule, pending_count: int) -> None:
        self._schedule = schedule
        draw = random.Random(7)
        self._delays_ms = [draw.randint(1_000, 60_000) for _ in range(SAMPLE_OPERATIONS)]
        self._pending = deque(schedule(draw.randint(30_000, 60_000)) for _ in range(pending_count))

    def set_and_cancel(self, delays_ms: list[int]) -> None:
        schedule = self._schedule
        for delay_ms in delays_ms:
            schedule(delay_ms).cancel()

    def replace(self, delays_ms: list[int]) -> None:
        schedule, pending = self._schedule, self._pending
        for delay_ms in delays_ms:
            pending.popleft().cancel()
            pending.append(schedule(delay_ms))

    async def costs_us(self, operate: Callable[[list[int]], None]) -> list[float]:
        """What one operation cost, in each of several samples."""
        samples_us: list[float] = []
        for _ in range(SAMPLES):
            started = time.process_time()
            for start in range(0, SAMPLE_OPERATIONS, TURN_OPERATIONS):
                operate(self._delays_ms[start : start + TURN_OPERATIONS])
                await asyncio.sleep(0)
            samples_us.append((time.process_time() - started) / SAMPLE_OPERATIONS * 1e6)
        return samples_us

    def clear(self) -> None:
        for delay in self._pending:
            delay.cancel()
        self._pending.clear()


async def measure(schedule: Schedule, pending_count: int) -> tuple[list[float], list[float]]:
    load = Load(schedule, pending_count)
    samples_us = await load.costs_us(load.set_and_cancel), await load.costs_us(load.replace)
    load.clear()
    await asyncio.sleep(0)
    gc.collect()
    return samples_us


async def measure_both(pending_count: int) -> dict[str, list[float]]:
    """Samples by column of the table."""
    timer, loop = Timer(SystemClock()), asyncio.get_running_loop()
    own_set, own_replace = await measure(lambda delay_ms: timer.schedule(delay_ms, _nothing), pending_count)
    their_set, their_replace = await measure(
        lambda delay_ms: loop.call_later(delay_ms / 1_000, _nothing), pending_count
    )
    return {"own set": own_set, "their set": their_set, "own replace": own_replace, "their replace": their_replace}


def measure_all(counts: list[int]) -> Samples:
    samples: Samples = {count: {} for count in counts}
    for _ in range(PASSES):
        for count in counts:
            for column, costs_us in asyncio.run(measure_both(count)).items():
                samples[count].setdefault(column, []).extend(costs_us)
    return samples


def markdown(counts: list[int] | None = None) -> list[str]:
    """The table for docs/performance.md, by least sample, with the growth by median beside it."""
    samples = measure_all(counts or COUNTS)
    lines = [
        "| timers: one delay, µs | " + " | ".join(f"{count:,} pending" for count in samples) + " | growth (median) |",
        "|---|" + "---|" * (len(samples) + 1),
    ]
    for column, name in (
        ("own set", "Headrace, set and cancel"),
        ("their set", "asyncio `call_later`, set and cancel"),
        ("own replace", "Headrace, replace the oldest"),
        ("their replace", "asyncio `call_later`, replace the oldest"),
    ):
        least = [min(columns[column]) for columns in samples.values()]
        median = [statistics.median(columns[column]) for columns in samples.values()]
        growth = f"{max(least) / min(least):.2f} × ({max(median) / min(median):.2f} ×)"
        lines.append(f"| {name} | " + " | ".join(f"{cost:.2f}" for cost in least) + f" | {growth} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="the largest number of pending delays")
    most = parser.parse_args().most
    print_table(measure_all([count for count in COUNTS if count <= most]))


def print_table(samples: Samples) -> None:
    print("cost of setting and cancelling one delay, in µs (ratio: ours / asyncio's)\n")
    print(f"{'pending':>10} | {'set and cancel':^28} | {'replace the oldest':^28}")
    print(f"{'':>10} | {'ours':>8} {'asyncio':>9} {'ratio':>9} | {'ours':>8} {'asyncio':>9} {'ratio':>9}")
    for count, columns in samples.items():
        cells = []
        for load in ("set", "replace"):
            own, theirs = min(columns[f"own {load}"]), min(columns[f"their {load}"])
            cells.append(f"{own:8.2f} {theirs:9.2f} {own / theirs:8.2f}×")
        print(f"{count:>10,} | {' | '.join(cells)}")
    print("\nours, the dearest size against the cheapest:")
    for load, name in (("set", "set and cancel"), ("replace", "replace")):
        least = [min(columns[f"own {load}"]) for columns in samples.values()]
        median = [statistics.median(columns[f"own {load}"]) for columns in samples.values()]
        print(f"{name:>15}: {max(least) / min(least):.2f} × by least, {max(median) / min(median):.2f} × by median")


if __name__ == "__main__":
    main()
