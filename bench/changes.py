"""Measures the time from sending an event until the change feed sends it, against until a SQL query returns it.

    .venv/bin/python bench/changes.py [--seconds 30] [--architecture kappa] [--write]

``headrace views run --serve`` keeps one view of 100 keys over a topic with one partition. Events have numbers; a
thousand per second go to the topic, and the view has the highest number of each key. The view is always the answer over
a prefix of the log, so an event is visible when the highest number of all keys is not smaller. In the same run, one
reader asks SQLite every two milliseconds, and another one reads ``GET /views/numbers/changes``. The first five seconds
only warm up the view.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import loads
import report
import servers
from numbered_events import RATE, delays_s, send

BAR = 1.2
_WARM_S = 5
_LOOK_EVERY_S = 0.002
_START_S = 300
_HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_QUERY = "SELECT page, max(number) AS latest FROM events GROUP BY page"
_HIGHEST = "SELECT max(latest) FROM numbers"


def write_project(folder: Path, address: str, topic: str, architecture: str) -> None:
    (folder / "views").mkdir(parents=True)
    (folder / "headrace.toml").write_text(f'[log]\nbootstrap = "{address}"\n[serving]\nurl = "sqlite:///views.db"\n')
    head = f'topics = ["{topic}"]\narchitecture = "{architecture}"\nquery = "numbers.sql"\n'
    decode = '[decode]\nformat = "json"\nschema = "page STRING, number BIGINT"\n'
    (folder / "views" / "numbers.toml").write_text(head + decode)
    (folder / "views" / "numbers.sql").write_text(_QUERY)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of the change feed of a runner."""
    subprocess.run([*_HEADRACE, "views", "apply", "--project", str(folder)], check=True, capture_output=True)
    command = [*_HEADRACE, "views", "run", "--project", str(folder), "--serve", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as runner:
        try:
            assert runner.stdout is not None
            address = runner.stdout.readline().removeprefix("serving ").strip()
            assert runner.stdout.readline() == "ready\n"
            yield address
        finally:
            runner.terminate()


def until_seen(database: Path, last: int, seen: list[tuple[float, int]]) -> None:
    """Adds when the highest number rose, and to what, until it is the last one."""
    began_s = time.perf_counter()
    while seen[-1][1] < last:
        time.sleep(_LOOK_EVERY_S)
        with contextlib.suppress(sqlite3.OperationalError):  # nothing serves yet
            with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                (highest,) = connection.execute(_HIGHEST).fetchone()
            if highest is not None and highest > seen[-1][1]:
                seen.append((time.perf_counter(), highest))
        assert time.perf_counter() - began_s < _START_S, f"the view stays at {seen[-1][1]}"


def until_told(address: str, last: int, seen: list[tuple[float, int]]) -> None:
    """The same, as the change feed says it."""
    highest = -1
    with urlopen(f"http://{address}/views/numbers/changes", timeout=_START_S) as response:
        for line in response:
            if not line.startswith(b"data: "):
                continue
            data = json.loads(line[6:])
            row = data.get("row") or data.get("after")
            if row is not None:
                highest = max(highest, row["latest"])
            if (data.get("last_of_step") or "rows" in data) and highest > seen[-1][1]:
                seen.append((time.perf_counter(), highest))
            if highest >= last:
                return


def measure(folder: Path, architecture: str, seconds: int) -> tuple[list[float], list[float]]:
    with servers.headrace(folder / "data") as server:
        topic, project = "numbers", folder / "project"
        loads.create_topic(server, topic, 1)
        write_project(project, server.address, topic, architecture)
        total, events = 1 + (_WARM_S + seconds) * RATE, seconds * RATE
        sent_s = [0.0] * total
        send(server.address, topic, sent_s, range(1))
        with running(project) as address:
            queried, told = [(0.0, -1)], [(0.0, -1)]
            until_seen(project / "views.db", 0, queried)
            readers = [
                threading.Thread(target=until_seen, args=(project / "views.db", total - 1, queried), daemon=True),
                threading.Thread(target=until_told, args=(address, total - 1, told), daemon=True),
            ]
            for reader in readers:
                reader.start()
            while told[-1][1] < 0:
                time.sleep(0.01)
            send(server.address, topic, sent_s, range(1, total))
            for reader in readers:
                reader.join(_START_S)
    queried_s, told_s = delays_s(queried, sent_s, events), delays_s(told, sent_s, events)
    return [delay * 1e3 for delay in queried_s], [delay * 1e3 for delay in told_s]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--architecture", choices=["kappa", "lambda"], default="kappa")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        queried, told = measure(Path(name), options.architecture, options.seconds)
    what = f"{options.architecture}, {RATE:,} events/s: produce to seen"
    table = report.Table(peer="a SQL query", ours="the change feed")
    table.rows = {
        "p50": report.Row(f"{what}, p50", "ms", "<=", BAR, statistics.median(queried), statistics.median(told)),
        "p99": report.Row(
            f"{what}, p99", "ms", "<=", apache=queried[len(queried) * 99 // 100], headrace=told[len(told) * 99 // 100]
        ),
    }
    text = table.markdown()
    print(text)
    if options.write:
        report.write("changes", text)


if __name__ == "__main__":
    main()
