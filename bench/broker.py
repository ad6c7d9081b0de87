"""Headrace's broker against Apache Kafka 4.3.0, both in one run on this machine. Prints a table of ratios.

    .venv/bin/python bench/broker.py [--quick] [--write]

``--write`` puts the table into docs/performance.md. Close other programs: on two cores they change the numbers. The two
brokers are measured in alternating turns (``turns.py``).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import echo
import loads
import report
import servers
import timers
from report import Row, Table
from turns import alternate, put_best_rates, warm


def rows() -> dict[str, Row]:
    return {
        "start": Row("start to first Metadata answer", "s", "<=", 1 / 10),
        "idle": Row("memory, idle", "MB", "<=", 1 / 6),
        "loaded": Row("memory, after 2 M records", "MB", "<=", 1 / 8),
        "produce": Row("produce, 100 B, 4 partitions, acks=all, librdkafka", "records/s", ">=", 1.2),
        "produce cpu": Row("broker CPU for that produce", "s", "<=", 0.6),
        "consume cpu": Row("broker CPU for the consume", "s", "<=", 0.5),
        "single": Row("one record per request (producer-perf-test, batch.size=1)", "requests/s", ">=", 1.0),
        "single cpu": Row("broker CPU of such a request", "µs", "<=", 0.9),
        "ack p50": Row("one record acked, p50", "ms", "<=", 1.1),
        "ack p99": Row("one record acked, p99", "ms", "<=", 0.4),
        "restart": Row("10,000 idle partitions: restart", "s", "<=", 0.5),
        "many": Row("10,000 idle partitions: memory", "MB", "<=", 0.4),
    }


Start = Callable[[Path], AbstractContextManager[servers.Server]]


def starts(table: Table, sides: Mapping[str, Start], folder: Path, rounds: int) -> None:
    """Measures the time from nothing to the first answer, on a new folder each time: the median of several turns."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds):
        for side, start in sides.items():
            data = folder / f"{side}-start-{number}"
            with start(data) as server:
                seconds[side].append(server.start_seconds)
            shutil.rmtree(data)
    for side, each in seconds.items():
        table.put(side, "start", statistics.median(each))


def measure(table: Table, running: Mapping[str, servers.Server], scale: float) -> None:
    records, requests, acks = int(2_000_000 * scale), int(40_000 * scale), int(2_000 * scale)
    for side, server in running.items():
        table.put(side, "idle", server.memory_mb)
        for topic, partitions in (("warm", loads.PARTITIONS), ("bulk", loads.PARTITIONS), ("single", 1), ("ack", 1)):
            loads.create_topic(server, topic, partitions)
    warm(running, lambda server: loads.produce(server, "warm", records), rounds=2)
    produced = alternate(running, lambda server: loads.produce(server, "bulk", records), rounds=3)
    put_best_rates(table, "produce", "produce cpu", produced)
    for side, server in running.items():
        table.put(side, "loaded", server.memory_mb)
    warm(running, lambda server: loads.consume(server, "warm", records), rounds=2)
    consumed = alternate(running, lambda server: loads.consume(server, "bulk", records), rounds=3)
    for side, rates in consumed.items():
        table.put(side, "consume cpu", min(rate.broker_cpu_seconds for rate in rates))
    warm(running, lambda server: loads.one_record_a_request(server, "warm", requests), rounds=2)
    singles = alternate(running, lambda server: loads.one_record_a_request(server, "single", requests), rounds=3)
    put_best_rates(table, "single", "single cpu", singles)
    latency(table, running, acks)


def latency(table: Table, running: Mapping[str, servers.Server], acks: int) -> None:
    """Measures one request at a time. An empty server takes turns too, to show the machine's share of the latency."""
    warm(running, lambda server: loads.one_record_acked(server, "warm", acks), rounds=10)
    with echo.running() as floor:
        sides = {**running, "an empty server": floor}
        acked = alternate(sides, lambda server: loads.one_record_acked(server, "ack", acks), rounds=11)
    for side, latencies in acked.items():
        p50_ms = statistics.median(latency.p50_ms for latency in latencies)
        p99_ms = statistics.median(latency.p99_ms for latency in latencies)
        if side in running:
            table.put(side, "ack p50", p50_ms)
            table.put(side, "ack p99", p99_ms)
        else:
            table.remark(f"One request to {side} (`bench/echo.py`), p50 {p50_ms:.3g} ms, p99 {p99_ms:.3g} ms.")


def many_partitions(table: Table, side: str, start: Start, folder: Path, count: int) -> None:
    data = folder / f"{side}-many"
    with start(data) as server:
        for first in range(0, count, 1000):
            loads.create_topic(server, f"idle-{first}", min(1000, count - first))
    with start(data) as server:
        table.put(side, "restart", server.start_seconds)
        table.put(side, "many", server.memory_mb)
    shutil.rmtree(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", choices=["load", "partitions", "timers"], help="a part of it")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    table = Table(rows())
    servers.fetch_apache()
    sides: dict[str, Start] = {"apache": servers.apache, "headrace": servers.headrace}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        if options.only in (None, "load"):
            starts(table, sides, folder, 5)
            with ExitStack() as stack:
                running = {side: stack.enter_context(start(folder / side)) for side, start in sides.items()}
                measure(table, running, scale)
        if options.only in (None, "partitions"):
            for side, start in sides.items():
                many_partitions(table, side, start, folder, int(10_000 * scale))
    timer_lines = timers.markdown() if options.only in (None, "timers") else []
    result = table.markdown(*timer_lines)
    print("\n" + result)
    if options.write:
        report.write("broker", result)


if __name__ == "__main__":
    main()
