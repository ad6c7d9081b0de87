"""Headrace's groups and transactions against Apache Kafka 4.3.0, both in one run. Prints a table of ratios.

    .venv/bin/python bench/groups.py [--quick] [--write] [--only PART] [--side SIDE]

``--write`` puts the table into docs/performance.md. Apache is warmed up before each load but the restart. The two take
turns, round by round, and of each the best round counts. Both brokers run with their defaults but for
``group.initial.rebalance.delay.ms=0``: by default both let a new group wait three seconds for more members, and that
wait would be all that is measured.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import group_loads
import loads
import report
import servers
from report import Row, Table
from turns import alternate, put_best_rates, warm

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
NOTE = (
    "Both brokers have `group.initial.rebalance.delay.ms=0`; a member that is in heartbeats every "
    f"{group_loads.HEARTBEAT_SECONDS * 1000:.0f} ms. Commits are sent one after the other on one connection."
)

Start = Callable[[Path, Mapping[str, str]], AbstractContextManager[servers.Server]]
ROUNDS = 8


def rows() -> dict[str, Row]:
    return {
        "stable": Row("group of 100 members, 400 partitions, from first join to Stable", "s", "<=", 1.0),
        "commits": Row("OffsetCommit of 100 partitions", "requests/s", ">=", 1.0),
        "commit cpu": Row("broker CPU of such a request", "µs", "<="),
        "transactions": Row("transactions of one producer, 10 records each, librdkafka", "transactions/s", ">=", 1.0),
        "transaction cpu": Row("broker CPU of such a transaction", "µs", "<="),
        "restart": Row("restart with 1,000 groups of 100 offsets until the last answers", "s", "<=", 0.5),
    }


def measure(table: Table, running: Mapping[str, servers.Server], scale: float, only: str | None) -> None:
    if only in (None, "group"):
        for server in running.values():
            loads.create_topic(server, "shared", group_loads.GROUP_PARTITIONS)
        warm(running, lambda server: group_loads.group_to_stable(server, "warm", "shared", 5), rounds=ROUNDS)
        rounds = max(1, int(3 * scale))
        formed = alternate(
            running, lambda server: group_loads.group_to_stable(server, "bench", "shared", rounds), rounds=ROUNDS
        )
        for side, seconds in formed.items():
            table.put(side, "stable", min(seconds))
    if only in (None, "commits"):
        for server in running.values():
            loads.create_topic(server, "committed", group_loads.COMMIT_PARTITIONS)
        count = int(2_000 * scale)
        warm(running, lambda server: group_loads.offset_commits(server, "warm", "committed", count), rounds=ROUNDS)
        committed = alternate(
            running, lambda server: group_loads.offset_commits(server, "bench", "committed", count), rounds=ROUNDS
        )
        put_best_rates(table, "commits", "commit cpu", committed)
    if only in (None, "transactions"):
        for server in running.values():
            loads.create_topic(server, "written", 2)
        count = int(500 * scale)
        warm(running, lambda server: group_loads.transactions(server, "warm", "written", count), rounds=ROUNDS)
        written = alternate(
            running, lambda server: group_loads.transactions(server, "bench", "written", count), rounds=ROUNDS
        )
        put_best_rates(table, "transactions", "transaction cpu", written)


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
        chosen = {side: start for side, start in sides.items() if options.side in (None, side)}
        if options.only != "restart":
            with ExitStack() as stack:
                running = {
                    side: stack.enter_context(start(Path(name, side), SETTINGS)) for side, start in chosen.items()
                }
                measure(table, running, scale, options.only)
        if options.only in (None, "restart"):
            for side, start in chosen.items():
                restart(table, side, start, Path(name), int(1_000 * scale))
    result = table.markdown(NOTE)
    print("\n" + result)
    if options.write:
        report.write("groups", result)


if __name__ == "__main__":
    main()
