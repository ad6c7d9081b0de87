"""Headrace's groups and transactions against Apache Kafka 4.3.0, both in one run. Prints the table of the issue.

    .venv/bin/python bench/groups.py [--quick] [--write] [--only PART] [--side SIDE]

``--write`` puts the table into docs/performance.md. Apache is warmed up before each load but the restart. Both brokers
run with their defaults but for ``group.initial.rebalance.delay.ms=0``: by default both let a new group wait three
seconds for more members, and that wait would be all that is measured.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import group_loads
import loads
import report
import servers
from report import Row, Table

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
NOTE = (
    "Both brokers have `group.initial.rebalance.delay.ms=0`; a member that is in heartbeats every "
    f"{group_loads.HEARTBEAT_SECONDS * 1000:.0f} ms. Commits are sent one after the other on one connection."
)

Start = Callable[[Path, Mapping[str, str]], AbstractContextManager[servers.Server]]
#: Rounds of the loads whose best is taken, on both sides.
ROUNDS = 6


def rows() -> dict[str, Row]:
    return {
        "stable": Row("group of 100 members, 400 partitions, from first join to Stable", "s", "<=", 1.0),
        "commits": Row("OffsetCommit of 100 partitions", "requests/s", ">=", 1.0),
        "commit cpu": Row("broker CPU of such a request", "µs", "<="),
        "transactions": Row("transactions of one producer, 10 records each, librdkafka", "transactions/s", ">=", 1.0),
        "transaction cpu": Row("broker CPU of such a transaction", "µs", "<="),
        "restart": Row("restart with 1,000 groups of 100 offsets until the last answers", "s", "<=", 0.5),
    }


def best_of(load: Callable[[], loads.Rate]) -> loads.Rate:
    """The best round of several: on a machine with neighbours the same round takes up to twice as long as another."""
    return max((load() for _ in range(ROUNDS)), key=lambda rate: rate.per_second)


def measure(table: Table, side: str, server: servers.Server, scale: float, only: str | None) -> None:
    warmed = side == "apache"
    if only in (None, "group"):
        loads.create_topic(server, "shared", group_loads.GROUP_PARTITIONS)
        rounds = max(3, int(15 * scale))
        if warmed:
            group_loads.group_to_stable(server, "warm", "shared", 2 * rounds)
        table.put(side, "stable", group_loads.group_to_stable(server, "bench", "shared", rounds))
    if only in (None, "commits"):
        loads.create_topic(server, "committed", group_loads.COMMIT_PARTITIONS)
        count = int(3_000 * scale)
        if warmed:
            for _ in range(4):
                group_loads.offset_commits(server, "warm", "committed", count)
        rate = best_of(lambda: group_loads.offset_commits(server, "bench", "committed", count))
        table.put(side, "commits", rate.per_second)
        table.put(side, "commit cpu", rate.broker_cpu_seconds)
    if only in (None, "transactions"):
        loads.create_topic(server, "written", 2)
        count = int(1_000 * scale)
        if warmed:
            for _ in range(3):
                group_loads.transactions(server, "warm", "written", count)
        rate = best_of(lambda: group_loads.transactions(server, "bench", "written", count))
        table.put(side, "transactions", rate.per_second)
        table.put(side, "transaction cpu", rate.broker_cpu_seconds)


def restart(table: Table, side: str, start: Start, folder: Path, groups: int) -> None:
    data = folder / f"{side}-restart"
    with start(data, SETTINGS) as server:
        loads.create_topic(server, "committed", group_loads.COMMIT_PARTITIONS)
        known = group_loads.fill_groups(server, "committed", groups)
    with start(data, SETTINGS) as server:
        table.put(side, "restart", group_loads.until_all_answer(server, known))
    shutil.rmtree(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, to try the script")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--only", choices=["group", "commits", "transactions", "restart"], help="a part of it")
    parser.add_argument("--side", choices=["apache", "headrace"], help="one broker, to work on it")
    options = parser.parse_args()
    scale = 0.1 if options.quick else 1.0
    table = Table(rows())
    servers.fetch_apache()
    sides: dict[str, Start] = {"apache": servers.apache, "headrace": servers.headrace}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        for side, start in sides.items():
            if options.side not in (None, side):
                continue
            print(f"{side}:", flush=True)
            if options.only != "restart":
                with start(Path(name, side), SETTINGS) as server:
                    measure(table, side, server, scale, options.only)
                shutil.rmtree(Path(name, side))
            if options.only in (None, "restart"):
                restart(table, side, start, Path(name), int(1_000 * scale))
    result = table.markdown(NOTE)
    print("\n" + result)
    if options.write:
        report.write("groups", result)


if __name__ == "__main__":
    main()
