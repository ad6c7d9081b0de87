"""Measures how long a test of a view takes once Spark is up: ``bench/view_tests.py [ROUNDS]``.

The tests are those of ``headrace views init`` (aggregates that are combined) and those below: a Spark stream, and a
join that is kept by touched keys. Each test runs in both architectures that its view allows, and computes Spark's batch
answer after each step. The first two rounds are not counted: Java compiles the code that they run. There is no peer:
Spark has no such tests. The processor time of all processes depends less on what else runs than the time of the clock.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from headrace.testing.view_harness import FileTest, LocalHarness, open_test_session, view_tests
from headrace.tools.views.command import main as views

_WARM_UP = 2
_FILES = {
    "sources/orders.toml": """
        topics = ["orders"]
        [decode]
        format = "json"
        schema = "order_id BIGINT, customer_id BIGINT, amount BIGINT"
        """,
    "sources/customers.toml": """
        topics = ["customers"]
        kind = "table"
        [decode]
        format = "json"
        schema = "name STRING, country STRING"
        [decode.key]
        format = "json"
        schema = "customer_id BIGINT"
        """,
    "views/large.toml": 'architecture = "kappa"\nquery = "large.sql"\nkey = ["order_id"]\nmaintain = "stream"\n',
    "views/large.sql": "SELECT order_id, amount FROM orders WHERE amount > 10",
    "views/revenue.toml": 'architecture = "lambda"\nquery = "revenue.sql"\n',
    "views/revenue.sql": "SELECT c.country, sum(o.amount) AS total FROM orders o "
    "JOIN customers c ON o.customer_id = c.customer_id GROUP BY c.country",
    "tests/large.toml": """
        [[test]]
        name = "small orders are left out"
        records.orders = [{ order_id = 1, amount = 30 }, { order_id = 2, amount = 3 }]
        rows = [{ order_id = 1, amount = 30 }]
        """,
    "tests/revenue.toml": """
        [[test]]
        name = "two steps"
        [[test.step]]
        records.customers = [{ customer_id = 1, country = "DE" }]
        records.orders = [{ order_id = 1, customer_id = 1, amount = 30 }]
        rows = [{ country = "DE", total = 30 }]
        [[test.step]]
        records.customers = [{ customer_id = 1, country = "FR" }]
        rows = [{ country = "FR", total = 30 }]
        [[test]]
        name = "one step, one architecture"
        architectures = ["lambda"]
        records.customers = [{ customer_id = 1, country = "DE" }]
        records.orders = [{ order_id = 1, customer_id = 1, amount = 30 }]
        rows = [{ country = "DE", total = 30 }]
        """,
}


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        assert views(["init", folder]) == 0
        for name, text in _FILES.items():
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text(text)
        tests = view_tests(folder)
        from headrace.pipeline.project.loading import load_settings

        began = time.monotonic()
        spark = open_test_session(load_settings(folder))
        harness = LocalHarness(spark)
        print(f"Spark's start: {time.monotonic() - began:.1f} s; load average {os.getloadavg()[0]:.1f}")
        measured: dict[str, list[_Measured]] = {str(test): [] for test in tests}
        for number in range(_WARM_UP + rounds):
            for test in tests:
                taken = _measured(harness, test)
                if number >= _WARM_UP:
                    measured[str(test)].append(taken)
        spark.stop()
    print("| test | steps | architectures | median | processor time |\n|---|---|---|---|---|")
    for test in tests:
        found = measured[str(test)]
        seconds = statistics.median(each.seconds for each in found)
        cpu_s = statistics.median(each.cpu_s for each in found)
        print(f"| {test} | {len(test.run.test.steps)} | {found[0].ways} | {seconds:.2f} s | {cpu_s:.2f} s |")
    print(f"load average {os.getloadavg()[0]:.1f}")


class _Measured(NamedTuple):
    """
    :ivar cpu_s: seconds of all processors.
    :ivar ways: how the architectures kept the answer up to date.
    """

    seconds: float
    cpu_s: float
    ways: str


def _measured(harness: LocalHarness, test: FileTest) -> _Measured:
    cpu_s, began = _cpu_s(), time.monotonic()
    outcome = harness.run(test.run)
    seconds, cpu_s = time.monotonic() - began, _cpu_s() - cpu_s
    assert not any(each.error for each in outcome.architectures)
    ways = ", ".join(f"{each.architecture} by {each.way}" for each in outcome.architectures if not each.skipped)
    return _Measured(seconds, cpu_s, ways)


def _cpu_s() -> float:
    """The processor time of this process and of the processes that it started, and theirs."""
    ours, stats = {os.getpid()}, {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            stats[int(name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    for _ in range(4):  # generations
        ours |= {pid for pid, (parent, _) in stats.items() if parent in ours}
    ticks = sum(used for pid, (_, used) in stats.items() if pid in ours)
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
