"""One statement that reads several views sees them at the same offsets: always, across a switch and a restart."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
from sqlalchemy import text

from headrace import Admin, Producer
from headrace.pipeline.common_cut import rounds
from headrace.pipeline.common_cut.common_cut import CommonCut
from headrace.pipeline.project.decode import Decode, FileText
from headrace.pipeline.project.definition import KappaSettings, LambdaSettings, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.runner.runner import Runner
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import SystemClock

pytestmark = pytest.mark.timeout(600)
TOPIC = "orders"
#: On a busy machine a job of Spark may take long; these tests are not about slow views.
_PATIENCE_MS = 60_000
_PATIENCE_S = 120.0
QUERY = "SELECT customer, count(*) AS n, sum(amount) AS total FROM events GROUP BY customer"
CHANGED = "SELECT customer, count(*) AS n, sum(amount) AS total, max(amount) AS most FROM events GROUP BY customer"
#: By the name of a view: its architecture, and the way in which it is kept.
VIEWS = {"by_lambda": ("lambda", "combine"), "by_kappa": ("kappa", "combine"), "by_keys": ("kappa", "touched")}
_SEEN = text(
    " UNION ALL ".join(f"SELECT '{view}', count(*), sum(n), sum(total) FROM {view}" for view in VIEWS)
    + " UNION ALL SELECT p.offsets, p.version, 0, 0 FROM headrace_progress p JOIN headrace_views v "
    "ON p.view = v.name AND p.version = v.serving_version"
)


class Seen(NamedTuple):
    """What one statement saw.

    :ivar answers: of each view, how many records it counts, and their total.
    """

    answers: frozenset[tuple[int, int]]
    offsets: frozenset[str]


class Shop:
    """A project of views over one topic, with the runner that keeps them up to date."""

    def __init__(self, spark, bootstrap: str, database, folder) -> None:
        self.database, self.catalog = database, Catalog(database)
        project = Project(folder, bootstrap, "sqlite://", str(folder / "archive"), "local[2]")
        self.context = RunContext(
            spark, project, database, self.catalog, SystemClock(), str(folder / "checkpoints"), PipelineMetrics(),
            common_cut=CommonCut(_PATIENCE_MS, _PATIENCE_MS),
        )  # fmt: skip
        self.producer = Producer(bootstrap_servers=bootstrap)
        self.sent = 0

    def apply(self, view: str, query: str = QUERY) -> None:
        architecture, way = VIEWS[view]
        definition = ViewDefinition(
            view, (TOPIC,), "", architecture, FileText("view.sql", query), Decode("json", "customer INT, amount INT"),
            kappa=KappaSettings(trigger_ms=50), lambda_=LambdaSettings(0, 50),
        )  # fmt: skip
        self.catalog.create_view(view, architecture, definition.definition_hash)
        values = json.loads(json.dumps(definition.as_dict() | {"way": way}))
        self.catalog.add_version(view, values, definition.definition_hash)

    def send(self, count: int) -> None:
        for number in range(count):
            value = {"customer": number % 5, "amount": 1}
            self.producer.send(TOPIC, json.dumps(value).encode(), partition=number % 2)
        self.producer.flush()
        self.sent += count

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()
        runner = threading.Thread(target=Runner(self.context).run, args=(stop,))
        runner.start()
        try:
            yield
        finally:
            stop.set()
            runner.join()

    def look(self) -> Seen:
        with self.database.read() as connection:
            rows = [tuple(row) for row in connection.execute(_SEEN)]
        views = [row for row in rows if row[0] in VIEWS]
        return Seen(
            frozenset((int(n or 0), int(total or 0)) for _, _, n, total in views),
            frozenset(row[0] for row in rows if row[0] not in VIEWS),
        )

    @contextmanager
    def readers(self) -> Iterator[list[Seen]]:
        """What a reader sees meanwhile, while records arrive."""
        found: list[Seen] = []
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                found.append(self.look())

        def write() -> None:
            while not stop.wait(0.03):
                self.send(3)

        threads = [threading.Thread(target=each) for each in (look, write)]
        for each in threads:
            each.start()
        try:
            yield found
        finally:
            stop.set()
            for each in threads:
                each.join()

    def waits_until(self, condition, what: str) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"not within {_PATIENCE_S:.0f} s: {what}: {self.catalog.versions()}"
            time.sleep(0.05)

    def serve(self, view: str, version: int) -> None:
        self.waits_until(lambda: self.catalog.view(view).serving_version == version, f"{view} v{version} serves")

    def goes_on(self) -> None:
        """All views have read everything that was sent by now."""
        sent = self.sent
        self.waits_until(lambda: min(n for n, _ in self.look().answers) >= sent, f"all have read {sent} records")

    def close(self) -> None:
        self.producer.close()


@pytest.fixture
def database(sqlite_url):
    """One database is enough here: ``common_cut/test_common_cut.py`` has both."""
    made = Database(sqlite_url)
    yield made
    made.close()


@pytest.fixture
def shop(spark, kafka, database, tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "SERVES_ANYHOW_MS", _PATIENCE_MS)
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, num_partitions=2)
        made = Shop(spark, kafka.bootstrap_servers, database, tmp_path)
        yield made
        made.close()
        admin.delete_topic(TOPIC)


def check(seen: list[Seen], least: int) -> None:
    """Every statement saw all views at the same offsets.

    :param least: at how many different ones, at least.
    """
    assert all(len(each.offsets) == 1 and len(each.answers) == 1 for each in seen), [
        each for each in seen if len(each.offsets) > 1 or len(each.answers) > 1
    ][:3]
    assert len({each.offsets for each in seen}) >= least


def test_a_statement_sees_all_views_at_the_same_offsets(shop):
    shop.send(40)
    for view in VIEWS:
        shop.apply(view)
    with shop.running():
        for view in VIEWS:
            shop.serve(view, 1)
        shop.goes_on()
        shop.waits_until(lambda: len(shop.look().offsets) == 1, "all are at the same offsets")
        with shop.readers() as seen:
            shop.goes_on()
            shop.apply("by_kappa", CHANGED)
            shop.serve("by_kappa", 2)
            shop.goes_on()
    check(seen, 3)  # before, between, and behind both times that records arrive
    with shop.readers() as seen, shop.running():
        shop.goes_on()
    check(seen, 2)


def test_a_project_can_switch_it_off(shop):
    shop.context = replace(shop.context, project=replace(shop.context.project, same_offsets=False))
    shop.apply("by_lambda")
    with shop.running():
        shop.send(3)
        shop.serve("by_lambda", 1)
        assert not shop.context.common_cut._rounds.followers
