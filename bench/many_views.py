"""Measures what many views cost: the time until all serve, and the CPU time of ``headrace views run``.

    .venv/bin/python bench/many_views.py [--before COMMIT] [--views 1 8] [--architectures lambda demo] [--only start]
                                         [--apart]

A topic has four partitions. Each view counts, sums and takes the maximum by 50 or by 500 keys. The rows are

* the time from the start of ``views run`` until all views serve, over a topic that already has 20,000 records; with
  ``--before`` the two commits take turns, and the medians are compared;
* CPU at rest, CPU at 1,000 events per second, memory, and the time from producing an event until a SQL query on a view
  returns it. Only this checkout is measured, unless ``--before`` is given with ``--only cpu``.

The starts are those after the first one on a machine: there is an archive of Spark's classes. Commits that know no
archive start without it.

``demo`` is the two views of ``headrace views init``, a Lambda view and a Kappa view; only its start is measured.

CPU and memory are those of the whole process tree: Python, Java and Spark's Python workers. The broker and the producer
are not counted. ``apply`` is not measured: each side applies its files once, and each turn begins with a copy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import confluent_kafka
import loads
import psutil
import report
import servers
from commits import Side, checkout

PARTITIONS = 4
FIRST_RECORDS = 20_000
RATE = 1_000
DEMO = "demo"
_ARCHITECTURES = ["lambda", "kappa"]
_KEYS = (50, 500)
_START_SECONDS = 400
_QUERY = "SELECT k{keys} AS page, count(*) AS n, sum(ms) AS ms, max(number) AS latest FROM events GROUP BY 1"
_SCHEMA = "k50 STRING, k500 STRING, ms BIGINT, number BIGINT"
_SERVING = "SELECT count(*) FROM headrace_views WHERE serving_version IS NOT NULL"
_WITH_BATCH = "SELECT count(DISTINCT view) FROM headrace_batches"
#: How often a view is asked for its highest number. Each look asks one view, in turn.
_LOOK_EVERY_S = 0.01
#: What to reach: the CPU at 1,000 events per second, in cores, and the start as a share of the commit before.
_CPU_BARS = {("kappa", 1): 0.3, ("kappa", 8): 0.8, ("lambda", 8): 0.3}
_SEEN_BAR_S = 1.0
_START_BAR = 0.5
_turns = count()


def name_of(number: int) -> str:
    return f"view{number}"


def write_project(folder: Path, address: str, topic: str, row: tuple[str, int], serving: str) -> None:
    architecture, views = row
    (folder / "views").mkdir(parents=True)
    settings = f'[log]\nbootstrap = "{address}"\n[serving]\nurl = "sqlite:///views.db"\n{serving}'
    (folder / "headrace.toml").write_text(settings)
    for number in range(views):
        name = name_of(number)
        decode = f'[decode]\nformat = "json"\nschema = "{_SCHEMA}"\n'
        head = f'topics = ["{topic}"]\narchitecture = "{architecture}"\nquery = "{name}.sql"\n'
        (folder / "views" / f"{name}.toml").write_text(head + decode)
        (folder / "views" / f"{name}.sql").write_text(_QUERY.format(keys=_KEYS[number % 2]))


def write_demo(folder: Path, address: str) -> None:
    """The project of ``headrace views init``, and its clicks, if the topic has none yet."""
    init = [str(Path(sys.executable).parent / "headrace"), "views", "init", str(folder), "--bootstrap-server", address]
    made = subprocess.run([*init, "--create-topics"], check=True, capture_output=True, text=True, timeout=60)
    settings = folder / "headrace.toml"
    settings.write_text(settings.read_text().replace("headrace-views.db", "views.db"))
    if "created the topic clicks" in made.stdout + made.stderr:
        produce = [sys.executable, str(folder / "produce.py"), str(FIRST_RECORDS), str(FIRST_RECORDS)]
        subprocess.run(produce, check=True, timeout=60)


def apply(side: Side, folder: Path) -> None:
    subprocess.run(_command("apply", folder), env=side.environment, check=True, capture_output=True, timeout=300)


def _command(verb: str, folder: Path) -> list[str]:
    return [str(Path(sys.executable).parent / "headrace"), "views", verb, "--project", str(folder)]


# ---------------------------------------------------------------------------------------------------------- one runner


class Running:
    """A process ``headrace views run``, and its children."""

    def __init__(self, side: Side, folder: Path, views: int) -> None:
        self.views = views
        self.database = folder / "views.db"
        self._log = (folder / "run.log").open("wb")
        self._started_s = time.perf_counter()
        self._process = subprocess.Popen(_command("run", folder), env=side.environment, stderr=self._log,
                                         stdout=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        self._tree = psutil.Process(self._process.pid)

    def wait_until_serving(self) -> float:
        """
        :return: the seconds since the start.
        """
        return self._wait_until(_SERVING)

    def wait_for_batches(self) -> float:
        """Waits for the first batches of Lambda views, which may come after the first answers."""
        return self._wait_until(_WITH_BATCH)

    def _wait_until(self, count: str) -> float:
        with contextlib.closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            while connection.execute(count).fetchone()[0] < self.views:
                seconds = time.perf_counter() - self._started_s
                if self._process.poll() is not None or seconds > _START_SECONDS:
                    raise RuntimeError(f"not all views serve after {seconds:.0f} s; see {self._log.name}")
                time.sleep(0.02)
        return time.perf_counter() - self._started_s

    def _processes(self) -> list[psutil.Process]:
        return [self._tree, *self._tree.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """The CPU time of the tree, with that of children that have ended."""
        total = 0.0
        for each in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(each.cpu_times()[:4])
        return total

    def memory_mb(self) -> float:
        """Memory that several processes share is counted once."""
        total = 0
        for each in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += each.memory_full_info().pss
        return total / 1e6

    def cores(self, seconds: float) -> float:
        """The mean number of cores in use during that time."""
        before, began_s = self.cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / (time.perf_counter() - began_s)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            for each in self._processes():
                each.kill()
            self._process.wait()
        self._log.close()


@contextlib.contextmanager
def running(side: Side, applied: Path, views: int) -> Iterator[Running]:
    """``views run`` on a copy of an applied project."""
    folder = applied.parent / f"turn-{next(_turns)}"
    shutil.copytree(applied, folder)
    started = Running(side, folder, views)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------------------------ the load


class Events:
    """Produces numbered events. ``sent_s`` has the time of each number, by ``time.perf_counter``."""

    def __init__(self, server: servers.Server, topic: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer({"bootstrap.servers": server.address, "linger.ms": 5})
        self.sent_s: list[float] = []

    def send(self) -> None:
        number = len(self.sent_s)
        event = {"k50": f"page-{number % 50}", "k500": f"page-{number % 500}", "ms": number % 1000, "number": number}
        self.sent_s.append(time.perf_counter())
        self._producer.produce(self._topic, json.dumps(event).encode(), partition=number % PARTITIONS)
        if number % 100 == 0:
            self._producer.poll(0)

    def send_first(self) -> None:
        for _ in range(FIRST_RECORDS):
            self.send()
        self.flush()

    def flush(self) -> None:
        assert not self._producer.flush(60), "events were not acknowledged"

    def send_at_rate(self, stop: threading.Event) -> None:
        began_s, first = time.perf_counter(), len(self.sent_s)
        while not stop.is_set():
            due = first + int((time.perf_counter() - began_s) * RATE)
            while len(self.sent_s) < due:
                self.send()
            time.sleep(0.005)
        self.flush()


def delays(started: Running, events: Events, stop: threading.Event) -> list[float]:
    """Asks the views in turn for their highest number.

    :return: for each number that a look shows first, the seconds since it was produced.
    """
    found: list[float] = []
    highest = [0] * started.views
    with contextlib.closing(sqlite3.connect(f"file:{started.database}?mode=ro", uri=True)) as connection:
        for look in count():
            if stop.is_set():
                return found
            view = look % started.views
            (seen,) = connection.execute(f"SELECT max(latest) FROM {name_of(view)}").fetchone()
            now_s = time.perf_counter()
            if seen is not None and seen > highest[view]:
                # Each number between is seen now; their times follow from the rate, so a few are enough.
                first = max(highest[view] + 1, seen - 5_000)
                found += [now_s - events.sent_s[number] for number in range(first, seen + 1, 10)]
                highest[view] = seen
            time.sleep(_LOOK_EVERY_S)
    return found


# ---------------------------------------------------------------------------------------------------------- the rows


def measure_cpu(side: Side, applied: Path, events: Events, row: tuple[str, int], seconds: float) -> None:
    what, views = f"{row[1]} {row[0]}", row[1]
    with running(side, applied, views) as started:
        started.wait_until_serving()
        if row[0] == "lambda":
            started.wait_for_batches()
        time.sleep(15)
        side.note(f"{what}: CPU at rest, cores", started.cores(seconds / 2))
        stop, stop_looking = threading.Event(), threading.Event()
        sender = threading.Thread(target=events.send_at_rate, args=(stop,))
        sender.start()
        try:
            time.sleep(20)  # until the JVM has compiled what runs often
            found: list[float] = []
            looker = threading.Thread(target=lambda: found.extend(delays(started, events, stop_looking)))
            looker.start()
            side.note(f"{what}: CPU at {RATE} events/s, cores", started.cores(seconds))
            stop_looking.set()
            looker.join()
            side.note(f"{what}: produce to seen p50, s", statistics.median(found) if found else float("inf"))
            side.note(f"{what}: memory, MB", started.memory_mb())
        finally:
            stop.set()
            sender.join()


def measure_starts(sides: list[Side], applied: dict[str, Path], row: tuple[str, int], rounds: int) -> None:
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            with running(side, applied[side.name], row[1]) as started:
                side.note(f"{row[1]} {row[0]}: all serving, s", started.wait_until_serving())
                side.note(f"{row[1]} {row[0]}: CPU until all serve, s", started.cpu_seconds())


def table_of(sides: list[Side]) -> tuple[list[str], bool]:
    """The medians, as lines of Markdown, and whether every bar is reached."""
    is_good = True
    lines = [f"| | {' | '.join(side.name for side in sides)} | to reach | |", f"|---|{'---|' * len(sides)}---|---|"]
    for row in sides[-1].numbers:
        values = [statistics.median(side.numbers[row]) if row in side.numbers else float("nan") for side in sides]
        bar = _bar(row, values)
        verdict = "" if bar is None else "reached" if values[-1] <= bar else "**not reached**"
        is_good &= verdict != "**not reached**"
        shown = " | ".join("" if math.isnan(value) else f"{value:.3g}" for value in values)
        lines.append(f"| {row} | {shown} | {'' if bar is None else f'≤ {bar:.3g}'} | {verdict} |")
    return lines, is_good


def _bar(row: str, values: list[float]) -> float | None:
    what, _, kind = row.partition(": ")
    views, architecture = what.split()
    if kind.startswith("all serving") and len(values) == 2 and values[0] == values[0]:
        return _START_BAR * values[0]
    if kind.startswith("CPU at 1"):
        return _CPU_BARS.get((architecture, int(views)))
    return _SEEN_BAR_S if kind.startswith("produce to seen") else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="the commit to compare the starts with")
    parser.add_argument("--views", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--architectures", nargs="+", choices=[*_ARCHITECTURES, DEMO], default=_ARCHITECTURES)
    parser.add_argument("--only", choices=["start", "cpu"], help="a part of the rows")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side for the starts (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of load per CPU row (default %(default)s)")
    parser.add_argument("--apart", action="store_true", help="each view commits by itself: same_offsets = false")
    parser.add_argument("--write", action="store_true", help="put the result into docs/performance.md")
    options = parser.parse_args()
    serving = "same_offsets = false\n" if options.apart else ""
    rows = [(name, views) for name in options.architectures for views in (options.views if name != DEMO else [2])]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-many-")))
        sides = [Side("after", servers.ROOT)]
        if options.before:
            sides.insert(0, Side("before", stack.enter_context(checkout(options.before))))
        subprocess.run([sys.executable, "-m", "headrace.pipeline.spark.class_archive"], check=True, capture_output=True)
        server = stack.enter_context(servers.headrace(folder / "data"))
        for row in rows:
            applied = {side.name: folder / f"{side.name}-{row[0]}-{row[1]}" / "applied" for side in sides}
            events = None
            if row[0] != DEMO:
                topic = f"events-{row[0]}-{row[1]}"
                loads.create_topic(server, topic, PARTITIONS)
                events = Events(server, topic)
                events.send_first()
            for side in sides:
                if events is None:
                    write_demo(applied[side.name], server.address)
                else:
                    write_project(applied[side.name], server.address, topic, row, serving)
                apply(side, applied[side.name])
            if options.only != "cpu":
                measure_starts(sides, applied, row, options.rounds)
            if events is None:
                continue
            for side in sides if options.only == "cpu" else sides[-1:] if options.only is None else []:
                measure_cpu(side, applied[side.name], events, row, options.seconds)
        lines, is_good = table_of(sides)
    print("", *lines, sep="\n")
    if options.write:
        report.write("many-views", "\n".join([report.measured(), "", *lines]))
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
