"""Of many views, one raises, one exhausts the Java heap, and one hangs. The others stay fresh and right.

All three are kept by touched keys, and two of them run Python code of a user. They do no harm until a record asks for
it. ``script/test`` has seven views, ``script/soak`` twenty; in a soak the view hangs before the heap is exhausted.
"""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lasting_server import Server
from views_harness import IS_SOAK
from views_process import TOPIC, ViewsProject

from headrace import Admin, Producer
from headrace.client.admin.types import NewTopic

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("views-0")]
RAISES, GREEDY, HANGS = BAD = ("raises", "greedy", "hangs")
GOOD = tuple(f"good{number}" for number in range(17 if IS_SOAK else 4))
#: How long a view may be behind, on a busy machine. A view that hangs at a death of Java delays the others by a minute.
FRESH_WITHIN_S = 150.0
_VIEW = """\
topics = ["{topic}"]
architecture = "{architecture}"
query = "{query}"

[decode]
schema = "visitor STRING, page STRING"
"""
_QUERIES = {
    "combined.sql": "SELECT page, count(*) AS clicks FROM events GROUP BY page",
    "touched.sql": "SELECT page, count(*) AS clicks, count(DISTINCT visitor) AS visitors FROM events GROUP BY page",
    "greedy.sql": "SELECT page, count(DISTINCT length(repeat(visitor, IF(page = 'greedy', 400000000, 1)))) AS n "
    "FROM events GROUP BY page",
    "user_code.py": """
import time

from pyspark.sql import functions as F


def _slow(page):
    while page == "hangs":
        time.sleep(1)
    return page


def _wrong(page):
    if page == "raises":
        raise ValueError("this page is not known")
    return page


def hangs(events):
    return events.groupBy(F.udf(_slow, "string")("page").alias("page")).agg(F.countDistinct("visitor").alias("n"))


def raises(events):
    return events.groupBy(F.udf(_wrong, "string")("page").alias("page")).agg(F.countDistinct("visitor").alias("n"))
""",
}


class IsolationHarness:
    def __init__(self, folder: Path) -> None:
        self._pick = random.Random(17)
        self.server = Server(folder / "broker")
        with Admin(bootstrap_servers=self.server.address) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)]).all()
        self._producer = Producer(bootstrap_servers=self.server.address)
        self.clicks: list[tuple[str, str]] = []
        self.project = ViewsProject(folder / "project", self.server.address, memory="512m")
        views = self.project.folder / "views"
        for file in views.iterdir():  # those that other tests use
            file.unlink()
        for name, text in _QUERIES.items():
            (views / name).write_text(text)
        for number, name in enumerate(GOOD):
            self._add(name, ("lambda", "kappa")[number % 2], ("combined.sql", "touched.sql")[number // 2 % 2])
        for name, query in ((RAISES, "user_code.py:raises"), (GREEDY, "greedy.sql"), (HANGS, "user_code.py:hangs")):
            self._add(name, "kappa", query)
        self.project.views = (*GOOD, *BAD)

    def _add(self, name: str, architecture: str, query: str) -> None:
        text = _VIEW.format(topic=TOPIC, architecture=architecture, query=query)
        (self.project.folder / "views" / f"{name}.toml").write_text(text)

    def write(self, count: int, *pages: str) -> None:
        """Writes clicks on these pages, and then on some others."""
        some = [f"p{self._pick.randrange(5)}" for _ in range(count)]
        for page in (*pages, *some):
            self.clicks.append((f"v{self._pick.randrange(20)}", page))
            self._producer.send(
                TOPIC, json.dumps(dict(zip(("visitor", "page"), self.clicks[-1], strict=True))).encode()
            )
        self._producer.flush()

    def are_fresh(self, *views: str) -> float:
        """Waits until these views have all clicks, and checks them. Returns how many seconds that took."""
        began, count = time.monotonic(), len(self.clicks)
        for view in views:
            self.project.waits_until(
                lambda view=view: self.project.counted(view) == count, f"{view} is not fresh", FRESH_WITHIN_S
            )
        took = time.monotonic() - began
        for view in views:
            answer = self.project.ask(view)
            assert set(answer.rows) == self._right(answer.columns), view
        return took

    def _right(self, columns: list[str]) -> set[tuple[object, ...]]:
        visitors: dict[str, list[str]] = {}
        for visitor, page in self.clicks:
            visitors.setdefault(page, []).append(visitor)
        rows = {
            page: {"page": page, "clicks": len(all_), "visitors": len(set(all_))} for page, all_ in visitors.items()
        }
        return {tuple(row[column] for column in columns) for row in rows.values()}

    def state(self, view: str) -> str:
        return self.project.states(view)[1][0]

    def close(self) -> None:
        self.project.close()
        self._producer.close()
        self.server.close()


@pytest.fixture
def harness(tmp_path) -> Iterator[IsolationHarness]:
    made = IsolationHarness(tmp_path)
    yield made
    made.close()


def test_the_others_stay_fresh(harness):
    project = harness.project
    harness.write(200)
    project.apply()
    project.start()
    project.serves()
    harness.are_fresh(*GOOD)

    harness.write(30, RAISES)
    raised = harness.are_fresh(*GOOD)
    project.waits_until(lambda: harness.state(RAISES) == "failed", "the view that raises is not failed")
    assert "this page is not known" in project.states(RAISES)[1][1]

    order = (HANGS, GREEDY) if IS_SOAK else (GREEDY, HANGS)
    took = {RAISES: raised}
    for bad in order:
        harness.write(30, bad)
        took[bad] = harness.are_fresh(*GOOD)
        if bad == GREEDY:
            project.waits_until(lambda: harness.state(GREEDY) == "failed", "the greedy view is not set aside")
            assert "out of heap memory" in project.states(GREEDY)[1][1]
            harness.write(30)
            took["after it was set aside"] = harness.are_fresh(*GOOD)
        else:
            with_those_that_hang = len(harness.clicks)
            harness.write(30)
            took["beside one that hangs"] = harness.are_fresh(*GOOD)
            assert project.counted(HANGS) < with_those_that_hang
    print(f"{len(GOOD)} views were fresh after s: {took}")  # noqa: T201
    for view in GOOD:
        project.waits_until(lambda view=view: harness.state(view) == "serving", f"{view} does not serve")
    assert project.terminate() == 0, project.log()
    assert "Traceback" not in project.log(10_000)
