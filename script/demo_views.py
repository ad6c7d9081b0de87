"""The second part of ``script/demo``: two views over a click stream that does not stop, one by Lambda and one by Kappa.

A project folder is written as a user would write it, and ``headrace views run`` keeps its views. Every answer says up
to which offsets of the log it counts, so every answer is checked, while clicks come in, batches land and versions are
switched: it must be exactly what counting those clicks by hand gives.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo_clicks import CLICKS, PARTITIONS, ClickStream
from demo_steps import HEADRACE, RunningBroker, Unexpected, done, expect, title

from headrace.pipeline.serving.errors import ServingError
from headrace.pipeline.serving.queries.query import Answer, QueryService

#: What is in the log before there is any view, and what comes in while the rest is shown.
HISTORY = 150_000
CLICKS_PER_SECOND = 2_000
PATIENCE_SECONDS = 300.0

PROJECT = """\
[log]
bootstrap = "{address}"

[spark]
master = "local[2]"
conf = {{ "spark.sql.shuffle.partitions" = "2" }}
"""
VIEW = """\
topics = ["{topic}"]
architecture = "{architecture}"
query = "{name}.sql"

[decode]
format = "json"
schema = "visitor STRING, page STRING, ms BIGINT, status INT, at TIMESTAMP"
"""
PAGES = """\
SELECT page, count(*) AS clicks, sum(ms) AS total_ms, avg(ms) AS mean_ms
FROM events
GROUP BY page
"""
VISITORS = """\
SELECT visitor, count(*) AS clicks
FROM events
GROUP BY visitor
"""
VISITORS_CHANGED = """\
SELECT visitor, count(*) AS clicks, count_if(status >= 500) AS errors
FROM events
GROUP BY visitor
"""


def show_views(broker: RunningBroker, folder: Path) -> None:
    expect(shutil.which("java") is not None, "Spark needs Java, 17 or newer: please install a JDK")
    title(f"A click stream: {HISTORY:,} clicks are there, {CLICKS_PER_SECOND:,} more come in every second")
    clicks = ClickStream(broker)
    began = time.perf_counter()
    clicks.produce(HISTORY)
    done(f"{HISTORY:,} clicks acknowledged in {time.perf_counter() - began:.1f} s")
    project = write_project(folder, broker.address)
    clicks.start(CLICKS_PER_SECOND)
    try:
        with running_views(project) as views:
            shop = Shop(project, clicks, views)
            shop.first_answers()
            shop.a_batch_lands()
            shop.the_query_changes()
            shop.roll_back()
            shop.everything_counted()
    finally:
        clicks.stop()
    title("Answers are there without anybody who keeps them")
    shop.ask("SELECT count(*) AS visitors, sum(clicks) AS clicks FROM visitors")


def write_project(folder: Path, address: str) -> Path:
    title("A project: one folder, one SQL file per view")
    views = folder / "views"
    views.mkdir(parents=True)
    (folder / "headrace.toml").write_text(PROJECT.format(address=address))
    for name, architecture, sql in (("pages", "lambda", PAGES), ("visitors", "kappa", VISITORS)):
        (views / f"{name}.toml").write_text(VIEW.format(topic=CLICKS, architecture=architecture, name=name))
        (views / f"{name}.sql").write_text(sql)
        show(f"views/{name}.sql, architecture = {architecture!r}", sql)
    headrace("views", "apply", "--project", str(folder))
    done("`headrace views apply` finds nothing wrong with it")
    return folder


@contextmanager
def running_views(project: Path) -> Iterator[ViewsProcess]:
    title("Keep the views: one process, a Spark driver for all of them")
    process = ViewsProcess(project)
    try:
        yield process
        process.stop()
    finally:
        process.kill()


class ViewsProcess:
    """``headrace views run``."""

    def __init__(self, project: Path) -> None:
        self._log_file = project / "views.log"
        with self._log_file.open("w") as log:
            self._process = subprocess.Popen(
                [str(HEADRACE), "views", "run", "--project", str(project)],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def check_it_runs(self) -> None:
        code = self._process.poll()
        expect(code is None, f"`headrace views run` ended with exit code {code}:\n{self.last_words()}")

    def last_words(self) -> str:
        return "\n".join(self._log_file.read_text(errors="replace").splitlines()[-30:])

    def stop(self) -> None:
        title("Stop `headrace views run`")
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(PATIENCE_SECONDS)
        expect(code == 0, f"`headrace views run` ended with exit code {code}:\n{self.last_words()}")
        done(f"stopped cleanly in {time.perf_counter() - began:.1f} s")

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # Spark's Java with it
            self._process.wait()


@dataclass
class Version:
    """
    :param has_failed: for good; what failed because the machine is busy is tried again.
    :param events: clicks that it has counted.
    """

    number: int
    has_failed: bool
    error: str | None
    events: int


class Shop:
    """The project while it runs, and the clicks that its answers are checked against."""

    def __init__(self, project: Path, clicks: ClickStream, views: ViewsProcess) -> None:
        self._project, self._clicks, self._views = project, clicks, views
        self._began = time.perf_counter()
        self._reader = QueryService(f"sqlite:///{project / 'headrace-views.db'}")

    # -- what is shown

    def first_answers(self) -> None:
        for view in ("pages", "visitors"):
            self._wait(lambda view=view: self._serving(view) == 1, f"{view} has no answer yet")
        done(f"both views have an answer after {time.perf_counter() - self._began:.1f} s, Spark's start included")
        self.ask("SELECT * FROM pages ORDER BY clicks DESC LIMIT 3")
        self.ask("SELECT * FROM visitors ORDER BY clicks DESC, visitor LIMIT 3")
        checked = self._check_all()
        done(f"each number is what counting by hand gives, over just those {checked:,} clicks")

    def a_batch_lands(self) -> None:
        title("Lambda: a batch over all clicks takes the place of what it covers, in one transaction")
        command = [str(HEADRACE), "views", "batch", "pages", "--project", str(self._project)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as batch:
            answers = self._read_while(lambda: batch.poll() is None)
            told = batch.stdout.read() if batch.stdout else ""
        expect(batch.returncode == 0, f"`headrace views batch` failed: {told}")
        done(f"{answers} answers were read meanwhile, and each was right: nothing twice, nothing missing")

    def the_query_changes(self) -> None:
        title("Kappa: the query changes; version 2 replays the log beside version 1, which goes on answering")
        (self._project / "views" / "visitors.sql").write_text(VISITORS_CHANGED)
        show("views/visitors.sql", VISITORS_CHANGED)
        self.ask("SELECT * FROM visitors ORDER BY clicks DESC, visitor LIMIT 3")
        headrace("views", "apply", "--project", str(self._project))
        began = time.perf_counter()
        status = ("views", "status", "visitors", "--project", str(self._project))
        show("$ headrace views status visitors", headrace(*status))
        progress = ProgressLine(len(self._clicks))
        answers = self._read_while(lambda: self._serving("visitors") != 2, progress)
        progress.end()
        took = time.perf_counter() - began
        done(f"replayed, caught up and switched after {took:.1f} s; {answers} answers read meanwhile, each right")
        self.ask("SELECT * FROM visitors ORDER BY clicks DESC, visitor LIMIT 3")
        self._check("visitors")

    def roll_back(self) -> None:
        title("Second thoughts: back to version 1, which has gone on counting; and forth again")
        for version, arguments in ((1, ("rollback", "visitors")), (2, ("switch", "visitors", "2"))):
            began = time.perf_counter()
            headrace("views", *arguments, "--project", str(self._project))
            self._wait(lambda version=version: self._serving("visitors") == version, "it was not switched")
            took = time.perf_counter() - began
            answer = self._check("visitors")
            done(f"`headrace views {' '.join(arguments)}`: {', '.join(answer.columns)} after {took:.1f} s")

    def everything_counted(self) -> None:
        title("The last click, and everything counted by hand")
        self._clicks.stop()
        for view in ("pages", "visitors"):
            self._wait(lambda view=view: self._is_at_the_end(view), f"{view} has not counted all clicks")
        expect(self._check_all() == len(self._clicks), "the views have not counted all clicks")
        done(f"both views have counted all {len(self._clicks):,} clicks, none twice")

    def ask(self, sql: str) -> None:
        """As a user would."""
        show(f'$ headrace query "{sql}"', headrace("query", sql, "--project", str(self._project)))

    # -- what is checked

    def _check_all(self) -> int:
        """How many clicks the views had counted."""
        return min(sum(offsets_of(self._check(view)).values()) for view in ("pages", "visitors"))

    def _check(self, view: str) -> Answer:
        answer = self._reader.query(f"SELECT * FROM {view}", limit=100_000)
        counted = self._clicks.counted("page" if view == "pages" else "visitor", offsets_of(answer))
        told = {str(row[0]): dict(zip(answer.columns[1:], row[1:], strict=True)) for row in answer.rows}
        expect(told.keys() == counted.keys(), f"{view} has {len(told)} rows where there should be {len(counted)}")
        for key, (clicks, total_ms, errors) in counted.items():
            right = {"clicks": clicks, "total_ms": total_ms, "mean_ms": total_ms / clicks, "errors": errors}
            expect(told[key].items() <= right.items(), f"{view} says {told[key]} of {key}, counted: {right}")
        return answer

    def _read_while(self, goes_on: Callable[[], bool], progress: ProgressLine | None = None) -> int:
        """Reads and checks answers; how many."""
        answers = 0
        give_up_at = time.perf_counter() + PATIENCE_SECONDS
        while goes_on():
            expect(time.perf_counter() < give_up_at, f"it takes too long:\n{self._views.last_words()}")
            self._views.check_it_runs()
            self._check_all()
            answers += 2
            if progress is not None:
                progress.show([one.events for one in self._versions("visitors") if one.number == 2])
            time.sleep(0.2)  # the processor is for Spark
        return answers

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        give_up_at = time.perf_counter() + PATIENCE_SECONDS
        while not condition():
            self._views.check_it_runs()
            if time.perf_counter() > give_up_at:
                raise Unexpected(f"{otherwise}:\n{self._views.last_words()}")
            time.sleep(0.05)

    def _is_at_the_end(self, view: str) -> bool:
        return offsets_of(self._reader.query(f"SELECT * FROM {view}")) == self._clicks.next_offsets

    def _serving(self, view: str) -> int | None:
        """Which version answers; None before the first one does."""
        try:
            (row,) = self._reader.query(f"SELECT serving_version FROM headrace_views WHERE name = '{view}'").rows
        except ServingError:
            return None
        failed = [f"{view} v{one.number}: {one.error}" for one in self._versions(view) if one.has_failed]
        expect(not failed, "; ".join(failed))
        return None if row[0] is None else int(str(row[0]))

    def _versions(self, view: str) -> list[Version]:
        rows = self._reader.query(
            "SELECT v.version, v.state = 'failed' AND v.due_ms IS NULL, v.error, p.offsets FROM headrace_versions v"
            " LEFT JOIN headrace_progress p ON p.view = v.view AND p.version = v.version"
            f" WHERE v.view = '{view}'"
        ).rows
        return [Version(int(str(n)), bool(failed), error and str(error), _counted(at)) for n, failed, error, at in rows]


class ProgressLine:
    """How far a replay is, as one line for each tenth of it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = -1

    def show(self, events: list[int]) -> None:
        tenths = min(10, sum(events) * 10 // self._total)
        if tenths > self._shown:
            self._shown = tenths
            print(f"      version 2 [{'#' * tenths:<10}] {sum(events):>9,} clicks", flush=True)

    def end(self) -> None:
        self.show([self._total])


def offsets_of(answer: Answer) -> dict[int, int]:
    """Up to which offsets it counts."""
    (as_of,) = answer.as_of
    found = dict(as_of.offsets[CLICKS])
    expect(len(found) == PARTITIONS, f"the answer does not say how much of each partition it counts: {found}")
    return found


def _counted(offsets: object) -> int:
    if offsets is None:
        return 0
    return sum(sum(partitions.values()) for partitions in json.loads(str(offsets)).values())


def headrace(*arguments: str) -> str:
    ran = subprocess.run([str(HEADRACE), *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    expect(ran.returncode == 0, f"`headrace {' '.join(arguments)}` failed: {ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


def show(heading: str, text: str) -> None:
    print(f"      {heading}")
    for line in text.rstrip().splitlines():
        print(f"        {line}", flush=True)
