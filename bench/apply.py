"""Measures ``headrace views apply`` while ``headrace views run`` is up: of one changed view, or in a large project.

    .venv/bin/python bench/apply.py BEFORE [--turns N]
    .venv/bin/python bench/apply.py [--views 50] [--changed 5] [--turns N]

Without BEFORE, the project has many views, Lambda and Kappa in turns. Every fifth one reads the view before it. Each
turn changes some views of both kinds. The time is that of ``apply --dry-run``, which prints the plan. The last line
is a row for ``docs/performance.md``.

BEFORE is a commit; the other side is this checkout. The runner is that of this checkout for both sides: the earlier
``apply`` does not use it, and starts a Spark of its own. Both take turns on one project with one view; each turn
changes the query, runs ``apply --dry-run`` and takes the time of the command. ``explain``, and a mistake that needs no
Spark, are measured beside, on this checkout only.
"""

from __future__ import annotations

import argparse
import contextlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import loads
import servers
from commits import Side, checkout

_BAR = 0.25
_BAR_OF_MANY_S = 10.0
_SERVE_WITHIN_S = 600.0
_QUERY = "SELECT page, count(*) AS n, max(ms) AS x{number} FROM events GROUP BY page"
_QUERY_OVER_A_VIEW = "SELECT n, count(*) AS x{number} FROM {upstream} GROUP BY n"
_VIEW = (
    'topics = ["clicks"]\narchitecture = "{architecture}"\nquery = "{name}.sql"\n'
    '[decode]\nschema = "page STRING, ms BIGINT"\n'
)
_VIEW_OVER_A_VIEW = 'architecture = "{architecture}"\nquery = "{name}.sql"\n'
_DATABASE = "headrace-views.db"
_HEADRACE = (sys.executable, "-c", "from headrace.tools.main import main; main()")
_numbers = count()


def headrace(side: Side, *words: str, fails: bool = False) -> float:
    """The seconds that a command takes."""
    command = [*_HEADRACE, "views", *words]
    began = time.perf_counter()
    ended = subprocess.run(command, env=side.environment, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode != 0) == fails, ended.stderr
    return time.perf_counter() - began


def upstream_of(names: list[str], number: int) -> str | None:
    """The view that this one reads; None if it reads the topic."""
    return names[number - 1] if number % 5 == 4 else None


def change(folder: Path, name: str, upstream: str | None = None) -> None:
    query = _QUERY if upstream is None else _QUERY_OVER_A_VIEW
    (folder / "views" / f"{name}.sql").write_text(query.format(number=next(_numbers), upstream=upstream))


@contextlib.contextmanager
def running(scratch: Path, names: list[str]) -> Iterator[tuple[Side, Path]]:
    """The folder of a project of views over an empty topic, whose runner is up; this checkout runs it."""
    now, folder = Side("now", servers.ROOT), scratch / "project"
    (folder / "views").mkdir(parents=True)
    with servers.headrace(scratch / "data") as server:
        loads.create_topic(server, "clicks", 1)
        (folder / "headrace.toml").write_text(f'[log]\nbootstrap = "127.0.0.1:{server.port}"\n')
        for number, name in enumerate(names):
            upstream = upstream_of(names, number)
            text = _VIEW if upstream is None else _VIEW_OVER_A_VIEW
            made = text.format(name=name, architecture=("lambda", "kappa")[number % 2])
            (folder / "views" / f"{name}.toml").write_text(made)
            change(folder, name, upstream)
        headrace(now, "apply", "--project", str(folder))
        command = [*_HEADRACE, "views", "run", "--project", str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as runner:
            assert runner.stdout is not None
            assert runner.stdout.readline() == "ready\n"
            try:
                yield now, folder
            finally:
                runner.terminate()


def wait_until_all_serve(folder: Path) -> float:
    """The seconds until every view has a version that serves."""
    began = time.monotonic()
    sql = "SELECT count(*) FROM headrace_views WHERE serving_version IS NULL"
    with contextlib.closing(sqlite3.connect(folder / _DATABASE)) as connection:
        while connection.execute(sql).fetchone() != (0,):
            assert time.monotonic() - began < _SERVE_WITHIN_S, "the views do not serve"
            time.sleep(0.2)
    return time.monotonic() - began


def measure_many(views: int, changed: int, turns: int) -> None:
    names = [f"view{number}" for number in range(views)]
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch), names) as (now, folder):
        print(f"{views} views serve {wait_until_all_serve(folder):.1f} s after the runner is ready")
        times = []
        for turn in range(turns):
            for number in range(changed):
                at = (turn * changed + number) % views
                change(folder, names[at], upstream_of(names, at))
            times.append(headrace(now, "apply", "--dry-run", "--project", str(folder)))
    median = statistics.median(times)
    print(f"apply, plan of {changed} changed views: {median:.2f} s ({', '.join(f'{each:.2f}' for each in times)})")
    verdict = "reached" if median <= _BAR_OF_MANY_S else "MISSED"
    print(
        f"| {views} views, {changed} changed, `views run` up: to the plan | {median:.2f} s | ≤ {_BAR_OF_MANY_S:.0f} s "
        f"| {verdict} |"
    )


def measure(before: Side, now: Side, folder: Path, turns: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"before": [], "now": [], "explain": [], "no such table": []}
    query, where = folder / "views" / "pages.sql", ("--project", str(folder))
    for _ in range(turns):
        for name, side in (("before", before), ("now", now)):
            change(folder, "pages")
            found[name].append(headrace(side, "apply", "--dry-run", *where))
        found["explain"].append(headrace(now, "explain", "pages", *where))
        query.write_text("SELECT page FROM nowhere")
        found["no such table"].append(headrace(now, "apply", *where, fails=True))
    return found


def measure_one(commit: str, turns: int) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        checkout(commit) as root,
        running(Path(scratch), ["pages"]) as (now, folder),
    ):
        found = measure(Side("before", root), now, folder, turns)
    medians = {name: statistics.median(times) for name, times in found.items()}
    for name, times in found.items():
        print(f"{name:14} {medians[name]:6.2f} s   ({', '.join(f'{each:.2f}' for each in times)})")
    ratio = medians["now"] / medians["before"]
    print(f"apply, now / before: {ratio:.2f}, at most {_BAR}: {'reached' if ratio <= _BAR else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE", nargs="?")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--views", type=int, default=50)
    parser.add_argument("--changed", type=int, default=5)
    options = parser.parse_args()
    if options.before is not None:
        measure_one(options.before, options.turns)
    else:
        measure_many(options.views, options.changed, options.turns)


if __name__ == "__main__":
    main()
