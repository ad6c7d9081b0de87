"""What a delay costs: Headrace's timer beside asyncio's ``call_later``, with more and more delays pending.

Two loads, each with N delays pending throughout, all between 1 and 60 seconds:

- *set and cancel*: a new delay is set and cancelled at once, as when a request is answered before its timeout;
- *replace*: the delay that was set longest ago is cancelled and a new one set, as with heartbeats and idle timers.

Both sides do the same operations in the same run, with the garbage collector as Python sets it, and the loop of
asyncio gets its turns (every 1,000 operations), because it is there that it drops cancelled delays. A cost is processor
time over a whole run of operations, so that collections and clean-ups count with those who cause them. The whole table
is measured three times and each cell is its least, because a busy machine only ever adds. The bar: ours flat within
1.5 × from 1,000 to 1,000,000, and below asyncio's there.

    .venv/bin/python bench/timers.py [--most 1000000]
"""

import argparse
import asyncio
import gc
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from headrace.runtime.clock import SystemClock
from headrace.runtime.timer import Timer

REPEATS = 3
ROUNDS = 8
ROUND_OPERATIONS = 20_000
TURN_OPERATIONS = 1_000


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
        self._delays_ms = [draw.randint(1_000, 60_000) for _ in range(ROUND_OPERATIONS)]
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

    async def cost_us(self, operate: Callable[[list[int]], None]) -> float:
        started = time.process_time()
        for _ in range(ROUNDS):
            for start in range(0, ROUND_OPERATIONS, TURN_OPERATIONS):
                operate(self._delays_ms[start : start + TURN_OPERATIONS])
                await asyncio.sleep(0)
        return (time.process_time() - started) / (ROUNDS * ROUND_OPERATIONS) * 1e6

    def clear(self) -> None:
        for delay in self._pending:
            delay.cancel()
        self._pending.clear()


async def measure(schedule: Schedule, pending_count: int) -> tuple[float, float]:
    load = Load(schedule, pending_count)
    costs_us = await load.cost_us(load.set_and_cancel), await load.cost_us(load.replace)
    load.clear()
    await asyncio.sleep(0)
    gc.collect()
    return costs_us


async def measure_ours(pending_count: int) -> tuple[float, float]:
    timer = Timer(SystemClock())
    return await measure(lambda delay_ms: timer.schedule(delay_ms, _nothing), pending_count)


async def measure_asyncio(pending_count: int) -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    return await measure(lambda delay_ms: loop.call_later(delay_ms / 1_000, _nothing), pending_count)


async def measure_both(pending_count: int) -> tuple[float, float, float, float]:
    own_set, own_replace = await measure_ours(pending_count)
    their_set, their_replace = await measure_asyncio(pending_count)
    return own_set, their_set, own_replace, their_replace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="the largest number of pending delays")
    most = parser.parse_args().most
    counts = [count for count in (1_000, 10_000, 100_000, 1_000_000) if count <= most]
    print("cost of setting and cancelling one delay, in µs (ratio: ours / asyncio's)\n")
    print(f"{'pending':>10} | {'set and cancel':^28} | {'replace the oldest':^28}")
    print(f"{'':>10} | {'ours':>8} {'asyncio':>9} {'ratio':>9} | {'ours':>8} {'asyncio':>9} {'ratio':>9}")
    tables = [[asyncio.run(measure_both(count)) for count in counts] for _ in range(REPEATS)]
    least = [tuple(map(min, zip(*cells, strict=True))) for cells in zip(*tables, strict=True)]
    for count, (own_set, their_set, own_replace, their_replace) in zip(counts, least, strict=True):
        set_cells = f"{own_set:8.2f} {their_set:9.2f} {own_set / their_set:8.2f}×"
        replace_cells = f"{own_replace:8.2f} {their_replace:9.2f} {own_replace / their_replace:8.2f}×"
        print(f"{count:>10,} | {set_cells} | {replace_cells}")
    for column, name in ((0, "set and cancel"), (2, "replace")):
        growth = least[-1][column] / least[0][column]
        print(f"{name}: ours at {counts[-1]:,} costs {growth:.2f} × that at {counts[0]:,}")


if __name__ == "__main__":
    main()
