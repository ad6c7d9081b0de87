"""Headrace's broker against Apache Kafka 4.3.0, both in one run on this machine. Prints the table of the issue.

    .venv/bin/python bench/broker.py [--quick] [--write]

``--write`` puts the table into docs/performance.md. Close other programs: with two cores, whatever else runs is
measured too.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import loads
import report
import servers
import timers
from report import Row, Table


def rows() -> dict[str, Row]:
    return {
        "start": Row("start to first Metadata answer", "s", "<=", 1 / 10),
        "idle": Row("memory, idle", "MB", "<=", 1 / 6),
        "loaded": Row("memory, after 2 M records", "MB", "<=", 1 / 8),
        "produce": Row("produce, 100 B, 4 partitions, acks=all, librdkafka", "records/s", ">=", 1.2),
        "produce cpu": Row("broker CPU for that produce", "s", "<=", 0.6),
        "consume cpu": Row("broker CPU for the consume", "s", "<=", 0.5),
        "single": Row("one record a request (producer-perf-test, batch.size=1)", "requests/s", ">=", 1.0),
        "single cpu": Row("broker CPU of such a request", "µs", "<=", 0.9),
        "ack p50": Row("one record acked, p50", "ms", "<=", 1.1),
        "ack p99": Row("one record acked, p99", "ms", "<=", 0.4),
        "restart": Row("10,000 idle partitions: restart", "s", "<=", 0.5),
        "many": Row("10,000 idle partitions: memory", "MB", "<=", 0.4),
    }


Start = Callable[[Path], AbstractContextManager[servers.Server]]


def measure(table: Table, side: str, start: Start, folder: Path, scale: float) -> None:
    records = int(2_000_000 * scale)
    data = folder / side
    with start(data) as server:
        table.put(side, "start", server.start_seconds)
        table.put(side, "idle", server.memory_mb)
        loads.create_topic(server, "warm")
        loads.create_topic(server, "bulk")
        loads.create_topic(server, "single", 1)
        loads.create_topic(server, "ack", 1)
        if side == "apache":
            warm_up(server, records)
        best = max((loads.produce(server, "bulk", records) for _ in range(2)), key=lambda rate: rate.per_second)
        table.put(side, "produce", best.per_second)
        table.put(side, "produce cpu", best.broker_cpu_seconds)
        table.put(side, "loaded", server.memory_mb)
        loads.consume(server, "bulk", records)
        table.put(side, "consume cpu", loads.consume(server, "bulk", records).broker_cpu_seconds)
        single = loads.one_record_a_request(server, "single", int(100_000 * scale))
        table.put(side, "single", single.per_second)
        table.put(side, "single cpu", single.broker_cpu_seconds)
        latency = loads.one_record_acked(server, "ack", int(20_000 * scale))
        table.put(side, "ack p50", latency.p50_ms)
        table.put(side, "ack p99", latency.p99_ms)
    shutil.rmtree(data)


def warm_up(server: servers.Server, records: int) -> None:
    """Until the JVM has compiled what it will: it is measured warm."""
    loads.produce(server, "warm", records)
    loads.consume(server, "warm", records)
    loads.one_record_a_request(server, "warm", 50_000)
    loads.one_record_acked(server, "warm", 20_000)


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
    sides: list[tuple[str, Start]] = [("apache", servers.apache), ("headrace", servers.headrace)]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        for side, start in sides:
            print(f"{side}:", flush=True)
            if options.only in (None, "load"):
                measure(table, side, start, Path(name), scale)
            if options.only in (None, "partitions"):
                many_partitions(table, side, start, Path(name), int(10_000 * scale))
    timer_lines = timers.markdown() if options.only in (None, "timers") else []
    result = table.markdown(*timer_lines)
    print("\n" + result)
    if options.write:
        report.write("broker", result)


if __name__ == "__main__":
    main()
