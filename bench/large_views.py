"""Rows of a large Kappa view into PostgreSQL on a Spark cluster: from the executors against through the driver.

    .venv/bin/python bench/large_views.py [--quick] [--write] [--rounds 2] [--groups 1000000 5000000]

A standalone cluster of a master and two workers runs on this machine. Each topic has two records per group, and its
replay is two micro-batches: the first one inserts a row per group, the second one changes all of these rows.
``[serving] executors_from`` decides who writes the rows.

The two sides take turns. In each turn a new driver (:mod:`large_views_driver`) replays a small topic, and then the
topics in the order of their sizes. The time is that of the micro-batch: reading, grouping, copying, and the commit.
The memory is that of the driver, Python and Java: its peak during the replay less what it was before. ``--write`` puts
the table into docs/performance.md. PostgreSQL and Java must be installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import loads
import numpy as np
import pyarrow as pa
import report
import servers
from report import Row, Table

from headrace import Producer
from headrace.testing.postgresql_process import PostgresqlProcess
from headrace.testing.spark_cluster import SparkCluster

#: By the names that the report knows: which side writes the rows, and what its [serving] executors_from is.
SIDES = {"apache": 0, "headrace": 1}
WARM_GROUPS = 10_000
PARTITIONS = 4
PER_SEND = 250_000
BAR = 1.5
_DRIVER = Path(__file__).with_name("large_views_driver.py")
_DRIVER_TIMEOUT_S = 600
_NOTE = (
    "Micro-batches of a Kappa view (`count(*)` and `max` of a time by key, a record per group) on a standalone cluster "
    "of two workers with one core each, into PostgreSQL on the same machine, which does not flush to disk. The time is "
    "that of the whole micro-batch, with reading and grouping. Through the driver: `[serving] executors_from = 0`. "
    "Memory: the peak during the replay, less what it was before; for Java with its garbage. Medians of the turns."
)


def topic_of(groups: int) -> str:
    return f"groups-{groups}"


def fill(server: servers.Server, groups: int) -> None:
    """Writes a record per group, with the keys in no order, and then all of them again."""
    loads.create_topic(server, topic_of(groups), PARTITIONS)
    numbers = np.random.default_rng(groups).permutation(groups)
    with Producer(bootstrap_servers=server.address) as producer:
        for first in (*range(0, groups, PER_SEND),) * 2:
            some = numbers[first : first + PER_SEND]
            keys = pa.array([b"customer-%d" % number for number in some.tolist()], pa.binary())
            values = pa.repeat(pa.scalar(b"x" * 20, pa.binary()), len(keys))
            producer.send_arrow(topic_of(groups), pa.table({"key": keys, "value": values})).result()


def turn(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Runs a driver, and yields what it measured for each number of groups."""
    done = subprocess.run(
        [sys.executable, str(_DRIVER), json.dumps(settings)], capture_output=True, text=True, timeout=_DRIVER_TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"the driver ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    for line in done.stdout.splitlines():
        if line.startswith("answer "):
            yield json.loads(line.removeprefix("answer "))


def rows_of(groups: list[int]) -> dict[str, Row]:
    rows = {}
    for count in groups:
        is_last = count == groups[-1]
        name = f"{count / 1e6:g} M"
        bar = BAR if is_last else float("inf")
        rows[f"{count} new"] = Row(f"{name} new groups", "rows/s", ">=", bar)
        rows[f"{count} changed"] = Row(f"{name} changed groups, all that there are", "rows/s", ">=", bar)
        for process in ("Python", "Java"):
            rows[f"{count} {process}"] = Row(f"memory of the driver's {process}, {name} groups", "MB", "<=")
    return rows


def measure(table: Table, settings: dict[str, Any], rounds: int) -> None:
    found: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for side in SIDES if number % 2 else reversed(SIDES):
            here = {**settings, "executors_from": SIDES[side], "folder": f"{settings['folder']}/{side}-{number}"}
            for answer in turn(here):
                what = answer["groups"]
                print(f"  {side:<9} {json.dumps(answer)}", flush=True)
                for kind in ("new", "changed"):
                    found.setdefault((side, f"{what} {kind}"), []).append(what / answer[kind])
                for process in ("Python", "Java"):
                    found.setdefault((side, f"{what} {process}"), []).append(answer[f"{process.lower()}_mb"])
    for (side, key), values in found.items():
        table.put(side, key, statistics.median(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the groups, one round")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each side (default %(default)s)")
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000_000, 5_000_000])
    options = parser.parse_args()
    groups = sorted(count // (50 if options.quick else 1) for count in options.groups)
    table = Table(rows_of(groups), peer="through the driver", ours="from the executors")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-large-")))
        server = stack.enter_context(servers.headrace(folder / "data"))
        for count in (WARM_GROUPS, *groups):
            fill(server, count)
        database = stack.enter_context(closing(PostgresqlProcess()))
        database.start()
        cluster = stack.enter_context(SparkCluster(folder / "cluster", memory="3g"))
        settings = {
            "folder": str(folder), "bootstrap": server.address, "url": database.url, "master": cluster.url,
            "topics": {topic_of(count): count for count in (WARM_GROUPS, *groups)}, "warm": WARM_GROUPS,
        }  # fmt: skip
        measure(table, settings, 1 if options.quick else options.rounds)
    result = table.markdown(_NOTE)
    print("\n" + result)
    if options.write:
        report.write("large-views", result)


if __name__ == "__main__":
    main()
