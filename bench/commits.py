"""Compares two commits of Headrace: the rows of ``broker.py`` and ``clients.py``, measured in alternating turns.

    .venv/bin/python bench/commits.py BEFORE [--quick] [--only broker|clients]

BEFORE is a commit; the other side is this checkout. Both sides run with the packages of this virtual environment. The
program exits with code 1 if a row is more than 5 % worse than before. A machine with neighbours varies by more than
that, so each row has several turns, and the best turn of each side counts. Repeat a doubtful row.

Broker rows need no Apache Kafka, except that "one record per request" uses Apache's producer-perf-test. Client rows run
the loads of each commit's own ``bench/client_loads.py``, each in a process of its own, against one broker of this
checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import loads
import servers

ALLOWED = 1.05
_WORKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import client_loads, servers
for line in sys.stdin:
    load, port, topic, partitions, records = json.loads(line)
    server = servers.Server("Headrace", port, None, 0.0, 0.0)
    print(json.dumps(getattr(client_loads, load)(server, topic, partitions, records)), flush=True)
"""
#: Loads of our own clients, the share of two million records that each handles, and whether it reads.
_CLIENT_LOADS = {
    "send_arrow": (1, False),
    "poll_arrow": (1, True),
    "send_async": (0.25, False),
    "send": (1, False),
    "iterate": (0.5, True),
    "iterate_async": (0.5, True),
    "producer_perf_test": (1, False),
    "consumer_perf_test": (1, True),
}


@dataclass
class Side:
    """One commit: where its files are."""

    name: str
    root: Path
    numbers: dict[str, list[float]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.root / "src")}

    def note(self, row: str, value: float) -> None:
        self.numbers.setdefault(row, []).append(value)
        print(f"  {self.name:<7} {row}: {value:,.4g}", flush=True)


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A worktree of a commit."""
    with tempfile.TemporaryDirectory(prefix="headrace-commit-") as name:
        folder = Path(name) / "checkout"
        git = ["git", "-C", str(servers.ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(folder), commit], check=True, timeout=60)
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True, timeout=60)


def broker_of(side: Side, data: Path) -> AbstractContextManager[servers.Server]:
    """The broker of one commit, as ``headrace start`` starts it."""
    return servers.headrace(data, {"group.initial.rebalance.delay.ms": "0"}, root=side.root)


def in_turns(sides: list[Side], rounds: int, turn: Callable[[Side], object]) -> None:
    """Each round has a turn of both sides; the side that begins alternates."""
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            turn(side)


# -- the broker


def measure_brokers(sides: list[Side], folder: Path, scale: float) -> None:
    starts = iter(range(10_000))

    def start(side: Side) -> None:
        with broker_of(side, folder / f"start-{next(starts)}") as server:
            side.note("start, s", server.start_seconds)
            side.note("memory idle, MB", server.memory_mb)

    in_turns(sides, 15, start)
    with contextlib.ExitStack() as stack:
        running = {side.name: stack.enter_context(broker_of(side, folder / side.name)) for side in sides}
        for server in running.values():
            for topic, partitions in (("bulk", loads.PARTITIONS), ("single", 1), ("ack", 1)):
                loads.create_topic(server, topic, partitions)

        def bulk(side: Side) -> None:
            server = running[side.name]
            produced = loads.produce(server, "bulk", int(2_000_000 * scale))
            side.note("produce, records/s", produced.per_second)
            side.note("produce CPU, s", produced.broker_cpu_seconds)
            side.note("consume CPU, s", loads.consume(server, "bulk", int(2_000_000 * scale)).broker_cpu_seconds)

        def single(side: Side) -> None:
            rate = loads.one_record_a_request(running[side.name], "single", int(40_000 * scale))
            side.note("one record per request, requests/s", rate.per_second)
            side.note("one record per request, CPU µs", rate.broker_cpu_seconds)

        def ack(side: Side) -> None:
            latency = loads.one_record_acked(running[side.name], "ack", int(2_000 * scale))
            side.note("ack p50, ms", latency.p50_ms)
            side.note("ack p99, ms", latency.p99_ms)

        in_turns(sides, 5, bulk)
        for side in sides:
            side.note("memory after load, MB", running[side.name].memory_mb)
        in_turns(sides, 4, single)
        in_turns(sides, 15, ack)
    for side in sides:
        data = folder / f"{side.name}-many"
        with broker_of(side, data) as server:
            for first in range(0, int(10_000 * scale), 1000):
                loads.create_topic(server, f"idle-{first}", 1000)
    for _ in range(3):
        for side in sides:
            with broker_of(side, folder / f"{side.name}-many") as server:
                side.note("restart with 10,000 partitions, s", server.start_seconds)
                side.note("memory with 10,000 partitions, MB", server.memory_mb)


# -- the clients


class Worker:
    """The clients of one commit, in a process of their own."""

    def __init__(self, side: Side) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(side.root / "bench")],
            env=side.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def rate(self, load: str, port: int, topic: str, partitions: int, records: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([load, port, topic, partitions, records]) + "\n")
        self._process.stdin.flush()
        rate: float = json.loads(self._process.stdout.readline())
        return rate

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def measure_clients(sides: list[Side], folder: Path, scale: float) -> None:
    records = int(2_000_000 * scale)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(broker_of(sides[-1], folder / "clients"))
        workers = {side.name: Worker(side) for side in sides}
        for worker in workers.values():
            stack.callback(worker.close)
        for partitions in (1, 4):
            full = f"full-{partitions}"
            loads.create_topic(server, full, partitions)
            workers[sides[0].name].rate("send_arrow", server.port, full, partitions, records)
            for load, (share, reads) in _CLIENT_LOADS.items():
                turn = partial(client_turn, server, workers, load, full if reads else None, partitions, records * share)
                in_turns(sides, 8, turn)


def client_turn(
    server: servers.Server,
    workers: dict[str, Worker],
    load: str,
    full: str | None,
    partitions: int,
    records: float,
    side: Side,
) -> None:
    """Runs a load of one side, on the full topic or on a topic of its own, which is deleted afterwards."""
    topic = full or f"{load}-{partitions}-{side.name}-{len(side.numbers.get(_row(load, partitions), ()))}"
    if full is None:
        loads.create_topic(server, topic, partitions)
    side.note(_row(load, partitions), workers[side.name].rate(load, server.port, topic, partitions, int(records)))
    if full is None:
        loads.delete_topic(server, topic)


def _row(load: str, partitions: int) -> str:
    return f"{load}, {partitions} partition{'s' * (partitions > 1)}, records/s"


# -- the result


def is_better_if_larger(row: str) -> bool:
    return row.endswith("/s")


def best(row: str, numbers: list[float]) -> float:
    return max(numbers) if is_better_if_larger(row) else min(numbers)


def report(before: Side, after: Side) -> bool:
    """Prints the table; returns whether no row is more than 5 % worse."""
    is_good = True
    print("\n| | before | after | ratio | |\n|---|---|---|---|---|")
    for row, numbers in before.numbers.items():
        old, new = best(row, numbers), best(row, after.numbers[row])
        if not old or not new:  # too short for the clock, with --quick
            continue
        loss = old / new if is_better_if_larger(row) else new / old
        is_good &= loss <= ALLOWED
        print(f"| {row} | {old:,.4g} | {new:,.4g} | {new / old:.3f} × | {'**worse**' if loss > ALLOWED else ''} |")
    return is_good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="the commit to compare with")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--only", choices=["broker", "clients"], help="a part of the rows")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    with checkout(options.before) as root, tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        sides = [Side("before", root), Side("after", servers.ROOT)]
        if options.only in (None, "broker"):
            measure_brokers(sides, Path(name), scale)
        if options.only in (None, "clients"):
            measure_clients(sides, Path(name), scale)
        is_good = report(*sides)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
