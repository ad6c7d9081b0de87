"""A Lambda view with all that it needs, for tests: broker, database, archive, and what it must show.

Events are JSON, ``{"page": ..., "ms": ...}``, or broken. What the view must show is computed here in plain Python from
what was sent, for any vector of offsets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Admin, Producer
from headrace.pipeline.archive.archive import Archive
from headrace.pipeline.decoding.dead_letters import DeadLetters
from headrace.pipeline.lambda_ import view as lambda_view
from headrace.pipeline.lambda_.batch_layer import BatchLayer
from headrace.pipeline.lambda_.store import LambdaStore
from headrace.pipeline.project.definition import Decode, FileText, LambdaSettings, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.query.aggregates import Algebra
from headrace.pipeline.query.plan import analyze
from headrace.pipeline.query.view_query import apply_query, empty_events
from headrace.pipeline.serving.catalog import Catalog, Offsets, Progress, Version, VersionEvent
from headrace.pipeline.serving.catalog_tables.sent_dead_letters import SentDeadLetters
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import Clock, SystemClock

_numbers = count()
QUERY = """
    SELECT page, count(*) AS n, sum(ms) AS total, min(ms) AS shortest, max(ms) AS longest
    FROM events GROUP BY page HAVING count(*) > 1
"""
TOTAL = "SELECT count(*) AS n, sum(ms) AS total, min(ms) AS shortest, max(ms) AS longest FROM events"
SCHEMA = "page STRING NOT NULL, ms BIGINT"
PARTITIONS = 2
#: Events, in two parts.
FIRST = [("home", 1), ("home", 2), ("about", 30), None, ("help", 4)]
SECOND = [("home", 5), ("about", 7), ("new", 1), ("new", 9), None]
Row = tuple[object, ...]


def answer(query: str, events: list[tuple[str, int]]) -> list[Row]:
    """Returns the query's rows over these events, sorted."""
    groups: dict[str | None, list[int]] = {None: []} if query == TOTAL else {}
    for page, ms in events:
        groups.setdefault(None if query == TOTAL else page, []).append(ms)
    if query == TOTAL:
        return [_measures(groups[None])]
    return sorted((page, *_measures(all_)) for page, all_ in groups.items() if page and len(all_) > 1)


def _measures(all_ms: list[int]) -> Row:
    return (len(all_ms), *((sum(all_ms), min(all_ms), max(all_ms)) if all_ms else (None, None, None)))


@dataclass
class LambdaHarness:
    """
    :ivar sent: by partition, what stands at each offset; None where it does not decode.
    """

    context: RunContext
    definition: ViewDefinition
    version: Version
    producer: Producer
    sent: dict[int, list[tuple[str, int] | None]] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def make(
        cls,
        spark: SparkSession,
        bootstrap: str,
        database: Database,
        folder: Path,
        *,
        query: str = QUERY,
        clock: Clock | None = None,
        batch_every_ms: int = 0,
        log_options: Mapping[str, str] | None = None,
    ) -> Iterator[LambdaHarness]:
        number, clock = next(_numbers), clock or SystemClock()
        topic, name = f"lambda-{number}", f"pages_{number}"
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(topic, num_partitions=PARTITIONS)
        project = Project(
            folder, bootstrap, "sqlite://", str(folder / "archive"), "local[2]", log_options=log_options or {}
        )
        definition = ViewDefinition(
            name, (topic,), "", "lambda", FileText("pages.sql", query), Decode("json", SCHEMA),
            dead_letters=f"{topic}.dead", lambda_=LambdaSettings(batch_every_ms, 1),
        )  # fmt: skip
        catalog = Catalog(database, clock)
        catalog.create_view(name, "lambda", definition.definition_hash)
        version = catalog.add_version(name, definition.as_dict(), definition.definition_hash)
        context = RunContext(spark, project, database, catalog, clock, str(folder / "checkpoints"), PipelineMetrics())
        with Producer(bootstrap_servers=bootstrap) as producer:
            yield cls(context, definition, version, producer, {at: [] for at in range(PARTITIONS)})

    @property
    def topic(self) -> str:
        return self.definition.topics[0]

    @property
    def key(self) -> tuple[str, int]:
        return self.version.view, self.version.version

    # ------------------------------------------------------------------------------------------------------ the log

    def send(self, *events: tuple[str, int] | None) -> None:
        """In turn to all partitions; known as sent before any reader can have seen it."""
        for event in events:
            at = sum(map(len, self.sent.values())) % PARTITIONS
            self.sent[at].append(event)
            value = b"{" if event is None else json.dumps({"page": event[0], "ms": event[1]}).encode()
            self.producer.send(self.topic, value, partition=at)
        self.producer.flush()

    def ends(self) -> Offsets:
        return {self.topic: {at: len(sent) for at, sent in self.sent.items()}}

    def expected(self, offsets: Offsets) -> list[Row]:
        """Returns the rows that the view must show at these offsets."""
        ends: Mapping[int, int] = offsets.get(self.topic, {})
        events = [event for at, end in ends.items() for event in self.sent[at][:end] if event is not None]
        return answer(self.definition.query.text, events)

    # ----------------------------------------------------------------------------------------------------- the view

    def serve(self) -> None:
        """Makes the version the one that readers see; its tables are there."""
        catalog = self.context.catalog
        if catalog.version(*self.key).state == "starting":
            catalog.set_state(*self.key, VersionEvent.STARTED)
        catalog.set_state(*self.key, VersionEvent.CAUGHT_UP)
        with self.context.database.begin() as connection:
            select_sql = catalog.version(*self.key, connection).select_sql
            assert select_sql is not None
            catalog.switch(connection, *self.key, select_sql)

    def seen(self) -> tuple[list[Row], Progress | None]:
        """Returns the rows of a reader, and the offsets, in one snapshot."""
        with self.context.database.read() as connection:
            progress = self.context.catalog.progress(connection, *self.key)
            rows = connection.exec_driver_sql(f'SELECT * FROM "{self.version.view}"').fetchall()
        return sorted(tuple(row) for row in rows), progress

    def check(self) -> Progress:
        """That a reader sees the query over exactly the progress."""
        rows, progress = self.seen()
        assert progress is not None
        assert rows == self.expected(progress.offsets), f"at {progress.offsets}"
        return progress

    # ------------------------------------------------------------------------------------------------------- layers

    def algebra(self) -> Algebra:
        spark = self.context.spark
        return Algebra(analyze(apply_query(spark, self.definition, empty_events(spark, self.definition))))

    def store(self) -> LambdaStore:
        store = LambdaStore(self.context.database, self.context.catalog, *self.key, self.algebra())
        with self.context.database.begin() as connection:
            store.create(connection)
        return store

    def batch_layer(self, store: LambdaStore) -> BatchLayer:
        archive = Archive(self.context.spark, self.context.project.archive_path, self.context.log_options)
        notes = SentDeadLetters(self.context.database, *self.key)
        dead_letters = DeadLetters(self.context.project, self.definition, notes)
        return BatchLayer(self.context, self.definition, store, store.algebra, archive, dead_letters)


#: Compiling queries takes longer than running them over a few rows.
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="module", autouse=True)
def quick(spark: SparkSession) -> Iterator[None]:
    """Spark, quicker for little data, in every module that imports this."""
    before = {name: spark.conf.get(name) for name in _INTERPRETED}
    for name, value in _INTERPRETED.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.fixture(autouse=True)
def first_batch_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version begins with a batch, however small its log is, in every module that imports this."""
    monkeypatch.setattr(lambda_view, "SMALL_LOG", -1)


def until(condition: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
    """Waits, and says what it has waited for if that does not come."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"it did not come to pass in {timeout_s} s: {what}"
        time.sleep(0.01)
