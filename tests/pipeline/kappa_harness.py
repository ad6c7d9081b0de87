"""A project with one Kappa view over its own topic, and the actions of the runner and the commands on it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.kappa.view import KappaView
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition
from headrace.pipeline.project.settings import Project
from headrace.pipeline.query.view_query import build
from headrace.pipeline.serving.catalog import Catalog, VersionEvent, VersionState
from headrace.pipeline.serving.catalog_tables.versions import offsets_text
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.failures import FailureKind, classify_failure
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.runtime.clock import SystemClock

SCHEMA = "page STRING, ms BIGINT, at TIMESTAMP"
BY_PAGE = "SELECT page, count(*) AS n, sum(ms) AS ms FROM events GROUP BY page"
_ATTEMPTS = 4
_topics = count()


class KappaHarness:
    """A project with one topic of its own, and what a runner would do with it."""

    def __init__(self, spark, bootstrap: str, database_url: str, folder: Path) -> None:
        self.spark, self.bootstrap = spark, bootstrap
        self.topic = f"kappa{next(_topics)}"
        self.database = Database(database_url)
        self.catalog = Catalog(self.database)
        self.folder = folder
        #: ``KappaView`` chooses the way by the query; ``KappaStream`` is always a stream.
        self.way: type[KappaView | KappaStream] = KappaView
        self._running: list[KappaView | KappaStream] = []
        self.project = Project(folder, bootstrap, database_url, str(folder / "archive"), "local[2]")
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(self.topic, num_partitions=2)

    def close(self) -> None:
        for each in self._running:
            each.stop()
        self.database.close()

    def definition(self, query: str = BY_PAGE, **changes) -> ViewDefinition:
        made = ViewDefinition(
            "pages", (self.topic,), "", "kappa", FileText("views/pages.sql", query), Decode("json", SCHEMA)
        )
        return replace(made, **changes)

    def apply(self, definition: ViewDefinition) -> int:
        self.catalog.create_view(definition.name, "kappa", definition.definition_hash)
        return self.catalog.add_version(
            definition.name, json.loads(json.dumps(definition.as_dict())), definition.definition_hash
        ).version

    def context(self, **others) -> RunContext:
        given = {
            "spark": self.spark, "project": self.project, "database": self.database, "catalog": self.catalog,
            "clock": SystemClock(), "checkpoints": str(self.folder / "checkpoints"), "metrics": PipelineMetrics(),
        }  # fmt: skip
        return RunContext(**(given | others))

    def running(self, version: int = 1, **others) -> KappaView | KappaStream:
        """As a runner makes one: from the state ``starting``."""
        found = self.catalog.version("pages", version)
        if found.state is not VersionState.STARTING:
            if found.state not in (VersionState.FAILED, VersionState.STOPPED):
                self.catalog.set_state("pages", version, VersionEvent.STOPPED)
            self.catalog.set_state("pages", version, VersionEvent.RESTARTED)
        self._running.append(self.way(self.context(**others), self.catalog.version("pages", version)))
        return self._running[-1]

    def start(self, version: int = 1) -> KappaView | KappaStream:
        """One that has caught up or failed. What may pass is tried again, as the runner does it: on a busy machine
        Spark's processes come too late at times."""
        for _ in range(_ATTEMPTS):
            running = self.running(version)
            running.start()
            until(lambda: running.lag().records == 0 or running.failure(), f"v{version} reads all")  # noqa: B023
            failure = running.failure()
            if failure is None or classify_failure(failure) is not FailureKind.TRANSIENT:
                break
        return running

    def run_once(self, version: int = 1, **others) -> KappaView | KappaStream:
        for attempt in range(1, 1 + _ATTEMPTS):
            running = self.running(version, **others)
            try:
                running.run_once()
                break
            except Exception as error:
                if classify_failure(error) is not FailureKind.TRANSIENT or attempt == _ATTEMPTS:
                    raise
        return running

    def serve(self, version: int) -> None:
        """As the runner and the commands do it."""
        if self.catalog.version("pages", version).state is VersionState.REPLAYING:
            self.catalog.set_state("pages", version, VersionEvent.CAUGHT_UP)
        with self.database.begin() as connection:
            select_sql = self.catalog.version("pages", version, connection).select_sql
            self.catalog.switch(connection, "pages", version, select_sql)

    def produce(self, *values: bytes | dict, **options) -> None:
        sent = []
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number, value in enumerate(values):
                raw = value if isinstance(value, bytes) else json.dumps(value).encode()
                sent.append(producer.send(self.topic, raw, partition=number % 2, **options))
        for one in sent:
            one.result()

    def clicks(self, number: int, pages: int = 7) -> None:
        self.produce(*({"page": f"p{one % pages}", "ms": one} for one in range(number)))

    def rows(self, version: int = 1) -> list[tuple]:
        select_sql = self.catalog.version("pages", version).select_sql
        with self.database.read() as reader:
            return [tuple(row) for row in reader.exec_driver_sql(select_sql)]

    def progress(self, version: int = 1):
        with self.database.read() as reader:
            return self.catalog.progress(reader, "pages", version)

    def truth(self, definition: ViewDefinition, version: int = 1) -> list[tuple]:
        """The query from scratch, over the log up to where the version says that it is."""
        reader = self.spark.read.format("headrace").option("kafka.bootstrap.servers", self.bootstrap)
        ends = offsets_text(self.progress(version).offsets)
        raw = reader.options(**definition.which_topics).option("endingOffsets", ends).load()
        return [tuple(row) for row in build(self.spark, definition, raw).collect()]

    def check(self, definition: ViewDefinition, version: int = 1) -> None:
        assert sorted(self.rows(version)) == sorted(self.truth(definition, version))

    def messages(self, topic: str) -> list:
        with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            end = consumer.end_offsets(TopicPartition(topic, 0))[TopicPartition(topic, 0)]
            found: list = []
            while len(found) < end:
                found += consumer.poll(1000)
            return found


def until(condition, what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)  # the one place that waits for Spark
