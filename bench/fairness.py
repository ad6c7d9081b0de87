"""Measures the answers to ordinary clients beside greedy clients: Headrace and Apache Kafka 4.3.0, in one run.

    .venv/bin/python bench/fairness.py [--quick] [--write] [--side SIDE] [--without CLIENT ...]

Fifty ordinary clients send five records per second each and wait for each acknowledgement: first alone, then beside one
client at full speed, one with requests of 9 MB, and one with thousands of connections (``fairness_loads.py``). The
brokers take turns, and the median of the rounds counts. ``--write`` puts the table into docs/performance.md.
``--without`` leaves some of the others out, to find who delays the ordinary clients.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import report
import servers
from confluent_kafka.admin import NewTopic
from fairness_loads import HUGE_PARTITIONS
from report import Row, Table
from turns import alternate

#: How often the p99 of ordinary clients may grow because of the others.
_MOST_GROWTH = 3.0
_OTHERS = ("fast", "huge", "crowd")
#: The others write as fast as they can: old segments are removed soon.
_SETTINGS = {"log.retention.check.interval.ms": "1000"}
_SHORT_LIVED = {"segment.bytes": "33554432", "retention.bytes": "33554432", "file.delete.delay.ms": "1000"}
_LOADS = Path(__file__).with_name("fairness_loads.py")


@dataclass(frozen=True)
class Scale:
    seconds: float
    rounds: int
    connections: int
    clients: int = 50
    per_second: float = 5.0


_FULL = Scale(seconds=10.0, rounds=3, connections=3_000)
_QUICK = Scale(seconds=5.0, rounds=1, connections=500)


def rows() -> dict[str, Row]:
    return {
        "alone p50": Row("one record acked, ordinary clients alone, p50", "ms", "<="),
        "alone p99": Row("the same, p99", "ms", "<="),
        "mixed p50": Row("one record acked, beside the others, p50", "ms", "<="),
        "mixed p99": Row("the same, p99", "ms", "<=", 1.0),
        "growth": Row("p99 beside the others, as a multiple of p99 alone", "×", "<=", limit=_MOST_GROWTH),
    }


@contextlib.contextmanager
def client(name: str, port: int, topic: str, *numbers: float) -> Iterator[subprocess.Popen[str]]:
    """A client of ``fairness_loads.py`` whose connections are open.

    The others have the lowest priority: they use the time that is left, and do not take the broker's processors. In a
    real cluster they are on other machines.
    """
    command = [sys.executable, str(_LOADS), name, str(port), topic, *map(str, numbers)]
    if name in _OTHERS:
        command = ["nice", "-n", "19", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", f"the client {name!r} did not start"
            yield process
        finally:
            process.terminate()


def ordinary(server: servers.Server, scale: Scale) -> Mapping[str, float]:
    with client("ordinary", server.port, "ordinary", scale.seconds, scale.clients, scale.per_second) as process:
        out, _ = process.communicate(timeout=scale.seconds + 120)
    found: Mapping[str, float] = json.loads(out)
    return found


def beside_others(server: servers.Server, scale: Scale, others: Sequence[str]) -> Mapping[str, float]:
    numbers = {"crowd": (scale.connections,)}
    with contextlib.ExitStack() as stack:
        for name in others:
            stack.enter_context(client(name, server.port, name, *numbers.get(name, ())))
        return ordinary(server, scale)


def create_topics(server: servers.Server) -> None:
    topics = [
        NewTopic("ordinary", 1, 1),
        NewTopic("crowd", 1, 1),
        NewTopic("fast", 1, 1, config=_SHORT_LIVED),
        NewTopic("huge", HUGE_PARTITIONS, 1, config=_SHORT_LIVED),
    ]
    admin = servers.admin(server)  # it must live until the futures are done
    for future in admin.create_topics(topics).values():
        future.result(timeout=120)


def measure(running: Mapping[str, servers.Server], scale: Scale, others: Sequence[str]) -> Table:
    table = Table(rows())
    for server in running.values():
        create_topics(server)
        beside_others(server, _QUICK, others)  # the JVM compiles what it will
    found = alternate(
        running,
        lambda server: (ordinary(server, scale), beside_others(server, scale, others)),
        rounds=scale.rounds,
    )
    for side, rounds in found.items():
        for key, index in (("alone", 0), ("mixed", 1)):
            for part in ("p50", "p99"):
                table.put(side, f"{key} {part}", statistics.median(each[index][part] for each in rounds))
        growth = statistics.median(mixed["p99"] / alone["p99"] for alone, mixed in rounds)
        table.put(side, "growth", growth)
        verdict = "at most" if growth <= _MOST_GROWTH else "more than"
        table.remark(f"{running[side].name}: the p99 grows by {verdict} {_MOST_GROWTH:.0f} ×.")
    table.remark(f"{scale.clients} ordinary clients, {scale.connections:,} connections of the crowd.")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--side", choices=["apache", "headrace"], help="measure one side alone")
    parser.add_argument("--without", nargs="+", choices=_OTHERS, default=(), help="leave some of the others out")
    options = parser.parse_args()
    scale = _QUICK if options.quick else _FULL
    others = [name for name in _OTHERS if name not in options.without]
    starts = {"apache": servers.apache, "headrace": servers.headrace}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name, contextlib.ExitStack() as stack:
        running = {
            side: stack.enter_context(start(Path(name) / side, _SETTINGS))
            for side, start in starts.items()
            if options.side in (None, side)
        }
        result = measure(running, scale, others).markdown()
    print("\n" + result)
    if options.write:
        report.write("fairness", result)


if __name__ == "__main__":
    main()
