"""Measures what it costs that readers see views at the same offsets, without Spark: the rounds and the transactions.

    .venv/bin/python bench/common_cut.py [--seconds 6]

Threads follow a log that grows by 1,000 records per second, as versions of views do it: they look every 200 ms, take
10 ms for a micro-batch (in the last row one of them takes 600 ms), and commit it to SQLite. A reader asks for all of
them in one statement. Each row is measured twice in turns, apart and together, and the better run counts:

* produce to seen, p50: from the arrival of a record until a statement sees it in a view;
* the share of statements that see the views at different offsets.

``many_views.py`` measures whole views with Spark; ``--apart`` there switches rounds off.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import text

from headrace.pipeline.common_cut.common_cut import CommonCut, SoloFollower
from headrace.pipeline.serving.database import Database
from headrace.runtime.clock import SystemClock

RATE = 1_000
INTERVAL_S, WORK_S, SLOW_S = 0.2, 0.01, 0.6
TOPIC = "events"


class Measured(NamedTuple):
    """
    :ivar seen_s: produce to seen, p50.
    :ivar differ: the share of statements.
    """

    seen_s: float
    differ: float


class Views:
    def __init__(self, folder: Path, works: list[float], *, together: bool) -> None:
        self._works, self._together = works, together
        self._database = Database(f"sqlite:///{folder / 'views.db'}")
        self._clock, self._common = SystemClock(), CommonCut()
        self._stop = threading.Event()
        self._began_s = time.perf_counter()
        with self._database.begin() as connection:
            connection.execute(text("CREATE TABLE progress (view INTEGER PRIMARY KEY, at INTEGER)"))
            rows = [{"view": view} for view in range(len(works))]
            connection.execute(text("INSERT INTO progress VALUES (:view, 0)"), rows)

    def _follow(self, view: int) -> None:
        key, alone = (f"view{view}", 1), nullcontext(SoloFollower(self._database))
        member_of = self._common.member(self._database, self._clock, key, TOPIC.__eq__) if self._together else alone
        at = 0
        with member_of as member:
            while not self._stop.is_set():
                end = int((time.perf_counter() - self._began_s) * RATE)
                cut = member.cut({TOPIC: {0: at}}, {TOPIC: {0: end}})[TOPIC][0]
                if cut > at:
                    self._stop.wait(self._works[view])
                    with member.begin() as connection:
                        update = text("UPDATE progress SET at = :at WHERE view = :view")
                        connection.execute(update, {"at": cut, "view": view})
                    at = cut
                self._stop.wait(INTERVAL_S - time.perf_counter() % INTERVAL_S)

    def measure(self, seconds: float) -> Measured:
        """What a reader sees of the views that are not slow."""
        threads = [threading.Thread(target=self._follow, args=(view,)) for view in range(len(self._works))]
        for each in threads:
            each.start()
        time.sleep(1)
        delays: list[float] = []
        differ: list[bool] = []
        seen = self._look()
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            before, seen, now_s = seen, self._look(), time.perf_counter() - self._began_s
            differ.append(len(set(seen)) > 1)
            for view, work in enumerate(self._works):
                if work == WORK_S:
                    delays += [now_s - number / RATE for number in range(before[view], seen[view], 10)]
            time.sleep(0.01)
        self._stop.set()
        for each in threads:
            each.join()
        self._database.close()
        return Measured(statistics.median(delays), sum(differ) / len(differ))

    def _look(self) -> list[int]:
        with self._database.read() as connection:
            return list(connection.execute(text("SELECT at FROM progress ORDER BY view")).scalars())


def best_of_two(works: list[float], seconds: float) -> tuple[Measured, Measured]:
    """Apart and together."""
    found: dict[bool, list[Measured]] = {False: [], True: []}
    for together in (False, True, True, False):
        with tempfile.TemporaryDirectory(prefix="headrace-cut-") as folder:
            found[together].append(Views(Path(folder), works, together=together).measure(seconds))
    apart, joined = (min(found[together], key=lambda each: each.seen_s) for together in (False, True))
    return apart, joined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="per run (default %(default)s)")
    seconds = parser.parse_args().seconds
    print("| Views | `false`: p50 | different offsets | `true`: p50 | different offsets |")
    print("|---|---|---|---|---|")
    for what, works in (
        ("1", [WORK_S]),
        ("4", [WORK_S] * 4),
        ("8", [WORK_S] * 8),
        ("8, and one whose micro-batch takes 0.6 s", [WORK_S] * 8 + [SLOW_S]),
    ):
        apart, joined = best_of_two(works, seconds)
        print(
            f"| {what} | {apart.seen_s:.2f} s | {apart.differ:.0%} | {joined.seen_s:.2f} s | {joined.differ:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
