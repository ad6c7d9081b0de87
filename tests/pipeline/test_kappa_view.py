"""Kappa versions in Spark, over a broker, into both databases. The truth is always the query run from scratch.

Most run once, as a batch that ends by itself: that is the same stream.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.pipeline.definition import Decode, KappaSettings, Source, ViewDefinition, Watermark
from headrace.pipeline.kappa_checkpoint import WrongCheckpoint
from headrace.pipeline.log_offsets import DataLost
from headrace.pipeline.pipeline_metrics import PipelineMetrics
from headrace.pipeline.project import Project
from headrace.pipeline.running import Surroundings
from headrace.pipeline.serving.catalog import Catalog, Event, State
from headrace.pipeline.serving.catalog_tables import offsets_text
from headrace.pipeline.serving.database import Database
from headrace.pipeline.source_columns import needed_columns
from headrace.pipeline.versions import KappaView
from headrace.pipeline.view import build
from headrace.runtime.clock import SystemClock

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]
SCHEMA = "page STRING, ms BIGINT, at TIMESTAMP"
BY_PAGE = "SELECT page, count(*) AS n, sum(ms) AS ms FROM events GROUP BY page"
_topics = count()


class World:
    """A project with one topic of its own, and what a runner would do with it."""

    def __init__(self, spark, bootstrap: str, database_url: str, folder: Path) -> None:
        self.spark, self.bootstrap = spark, bootstrap
        self.topic = f"kappa{next(_topics)}"
        self.database = Database(database_url)
        self.catalog = Catalog(self.database)
        self.folder = folder
        self.project = Project(folder, bootstrap, database_url, str(folder / "archive"), "local[2]")
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(self.topic, num_partitions=2)

    def close(self) -> None:
        self.database.close()

    def definition(self, query: str = BY_PAGE, **changes) -> ViewDefinition:
        made = ViewDefinition(
            "pages", (self.topic,), "", "kappa", Source("views/pages.sql", query), Decode("json", SCHEMA)
        )
        return replace(made, **changes)

    def apply(self, definition: ViewDefinition) -> int:
        self.catalog.create_view(definition.name, "kappa", definition.definition_hash)
        return self.catalog.add_version(
            definition.name, json.loads(json.dumps(definition.as_dict())), definition.definition_hash
        ).version

    def around(self, **others) -> Surroundings:
        given = {
            "spark": self.spark, "project": self.project, "database": self.database, "catalog": self.catalog,
            "clock": SystemClock(), "checkpoints": str(self.folder / "checkpoints"), "metrics": PipelineMetrics(),
        }  # fmt: skip
        return Surroundings(**(given | others))

    def running(self, version: int = 1, **others) -> KappaView:
        """As a runner makes one: from the state ``starting``."""
        found = self.catalog.version("pages", version)
        if found.state is not State.STARTING:
            if found.state not in (State.FAILED, State.STOPPED):
                self.catalog.set_state("pages", version, Event.STOPPED)
            self.catalog.set_state("pages", version, Event.RESTARTED)
        return KappaView(self.around(**others), self.catalog.version("pages", version))

    def run_once(self, version: int = 1, **others) -> None:
        self.running(version, **others).run_once()

    def serve(self, version: int) -> None:
        """As the runner and the commands do it."""
        if self.catalog.version("pages", version).state is State.REPLAYING:
            self.catalog.set_state("pages", version, Event.CAUGHT_UP)
        with self.database.begin() as connection:
            select_sql = self.catalog.version("pages", version, connection).select_sql
            self.catalog.switch(connection, "pages", version, select_sql)

    def produce(self, *values: bytes | dict, **options) -> None:
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number, value in enumerate(values):
                raw = value if isinstance(value, bytes) else json.dumps(value).encode()
                producer.send(self.topic, raw, partition=number % 2, **options)

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
        raw = reader.option("subscribe", self.topic).option("endingOffsets", ends).load()
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


@pytest.fixture
def world(spark, kafka, database_url, tmp_path):
    """In both databases."""
    made = World(spark, kafka.bootstrap_servers, database_url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def small(spark, kafka, sqlite_url, tmp_path):
    """In SQLite, for what is the same in both."""
    made = World(spark, kafka.bootstrap_servers, sqlite_url, tmp_path)
    yield made
    made.close()


def until(condition, what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)  # the one place that waits for Spark


# ---------------------------------------------------------------------------------------------------------- one version


def test_a_version_is_the_query_over_the_log(world):
    definition = world.definition(dead_letters=f"{world.topic}.dead")
    world.apply(definition)
    world.clicks(50)
    world.produce(b"{nonsense", b"", key=b"k")
    running = world.running()
    running.run_once()
    assert world.catalog.version("pages", 1).state is State.REPLAYING
    world.check(definition)
    assert (running.behind().records, running.behind().total) == (0, 52)
    progress = world.progress()
    assert (progress.events, progress.dead_letters, progress.dropped_late) == (52, 2, 0)
    assert progress.offsets == {world.topic: {0: 26, 1: 26}}
    letters = world.messages(definition.dead_letters)
    assert {(one.value, dict(one.headers)["headrace.offset"]) for one in letters} == {
        (b"{nonsense", b"25"),
        (b"", b"25"),
    }

    world.clicks(20, pages=9)  # old keys and new ones
    running = world.running()
    running.run_once()
    world.check(definition)
    progress = world.progress()
    assert (progress.events, progress.dead_letters, progress.batch_id) == (72, 2, 1)
    assert len(world.messages(definition.dead_letters)) == 2, "the second batch had none"
    assert running.around.metrics.of("pages", 1).events == 20
    with Admin(bootstrap_servers=world.bootstrap) as admin:
        told = admin.list_group_offsets("headrace.pages.v1")
        assert {place.partition: one.offset for place, one in told.items()} == {0: 36, 1: 36}

    folder = world.folder / "checkpoints" / "pages" / "v1"
    assert folder.exists()
    for _ in range(2):  # half of it may be done already
        running.drop()
    assert not folder.exists()
    with world.database.read() as reader:
        assert not reader.dialect.has_table(reader, "pages__v1")
    with Admin(bootstrap_servers=world.bootstrap) as admin:
        assert "headrace.pages.v1" not in [group.group_id for group in admin.list_groups()]


def test_what_is_dropped_may_never_have_run(small):
    small.apply(small.definition())
    KappaView(small.around(), small.catalog.version("pages", 1)).drop()


class Killed(Exception):
    """As good as ``kill -9`` for what is in the database: nothing after it is done."""


class DiesInTransaction(Catalog):
    def set_progress(self, connection, progress):
        raise Killed


class DiesAfterCommit(Database):
    """After a number of commits: the first one makes the tables."""

    def __init__(self, url: str, commits: int) -> None:
        super().__init__(url)
        self._left = commits

    @contextmanager
    def begin(self):
        with super().begin() as connection:
            yield connection
        self._left -= 1
        if self._left == 0:
            raise Killed


@pytest.mark.parametrize("batches_before", [0, 1])
def test_killed_inside_of_the_transaction(small, batches_before):
    definition = small.definition()
    small.apply(definition)
    for _ in range(batches_before):
        small.clicks(30)
        small.run_once()
    before = small.progress()
    small.clicks(20)
    with pytest.raises(Killed):
        small.run_once(catalog=DiesInTransaction(small.database))
    assert small.progress() == before
    small.clicks(10)
    small.run_once()
    small.check(definition)
    assert small.progress().batch_id == batches_before + 1


def test_killed_between_the_commit_and_the_checkpoint(small):
    definition = small.definition(dead_letters=f"{small.topic}.dead")
    small.apply(definition)
    small.clicks(30)
    small.produce(b"bad")
    dying = DiesAfterCommit(small.project.serving_url, commits=2)
    with pytest.raises(Killed):
        small.run_once(database=dying)
    dying.close()
    after = small.progress()
    assert after.batch_id == 0
    small.check(definition)
    assert not list((small.folder / "checkpoints/pages/v1/commits").glob("[0-9]*"))

    small.run_once()  # the same batch again
    assert small.progress() == after, "it counts once"
    small.clicks(10)
    small.run_once()
    small.check(definition)
    assert small.progress().events == 41
    assert len(small.messages(definition.dead_letters)) == 1


# -------------------------------------------------------------------------------------------------------------- queries


def test_sorted_groups_are_replaced_as_a_whole_and_keep_their_order(world):
    definition = world.definition("SELECT page, count(*) AS n FROM events GROUP BY page ORDER BY n DESC, page LIMIT 3")
    world.apply(definition)
    world.clicks(30, pages=5)
    world.run_once()
    assert world.rows() == [("p0", 6), ("p1", 6), ("p2", 6)]
    world.produce(*({"page": "p4"} for _ in range(5)))
    world.run_once()
    assert world.rows() == world.truth(definition) == [("p4", 11), ("p0", 6), ("p1", 6)]


def test_rows_that_are_not_grouped_have_the_key_that_they_are_given(small):
    definition = small.definition("SELECT page, ms, _offset AS at FROM events WHERE ms > 2", key=("page",))
    small.apply(definition)
    small.produce({"page": "a", "ms": 3}, {"page": "b", "ms": 4}, {"page": "c", "ms": 1})
    small.run_once()
    small.produce({"page": "a", "ms": 9})
    small.run_once()
    assert sorted(small.rows()) == [("a", 9, 2), ("b", 4, 0)]
    assert needed_columns(small.spark, definition) == ("value", "offset")


def test_without_a_watermark_nothing_is_late(small):
    by_hour = "SELECT window(at, '1 hour') AS w, count(*) AS n FROM events GROUP BY 1"
    definition = small.definition(by_hour)
    small.apply(definition)
    for hour in (9, 12, 7, 12):
        small.produce({"page": "a", "at": f"2026-11-16T{hour:02}:10:00Z"})
        small.run_once()
    small.check(definition)
    assert small.progress().dropped_late == 0


def test_with_a_watermark_late_events_are_dropped_and_counted(small):
    by_hour = "SELECT window(at, '1 hour') AS w, count(*) AS n FROM events GROUP BY 1"
    small.apply(small.definition(by_hour, watermark=Watermark("at", "10 minutes")))
    for hours in ((9,), (12,), (9, 9, 12, 9), (13, 7)):
        small.produce(*({"page": "a", "at": f"2026-11-16T{hour:02}:10:00Z"} for hour in hours))
        small.run_once()
    assert sorted(row[2] for row in small.rows()) == [1, 1, 2]
    assert small.progress().dropped_late == 4
    assert small.progress().events == 8


def test_a_version_may_begin_at_a_time(small):
    definition = small.definition(kappa=KappaSettings(start="2026-11-16T08:00:00Z"))
    small.apply(definition)
    for hour in (7, 8, 9):
        small.produce({"page": f"h{hour}"}, timestamp_ms=1794812400000 + (hour - 7) * 3_600_000)
    small.run_once()
    assert sorted(row[0] for row in small.rows()) == ["h8", "h9"]


# -------------------------------------------------------------------------------------------------------- what was lost


def test_a_topic_that_was_made_anew_is_no_silent_hole(small):
    definition = small.definition()
    small.apply(definition)
    small.clicks(10)
    small.run_once()
    before = small.rows()
    with Admin(bootstrap_servers=small.bootstrap) as admin:
        admin.delete_topic(small.topic)
        with pytest.raises(DataLost, match="no topic"):
            small.run_once()
        admin.create_topic(small.topic, num_partitions=2)
    small.clicks(40)
    with pytest.raises(DataLost, match="was deleted and made anew since pages v1 last read it"):
        small.run_once()
    assert small.rows() == before
    small.apply(definition)
    small.run_once(2)
    small.check(definition, 2)


def test_a_log_that_was_cut_under_a_version_is_no_silent_hole(small):
    small.apply(small.definition())
    small.clicks(10)
    small.run_once()
    small.clicks(10)
    with Admin(bootstrap_servers=small.bootstrap) as admin:
        admin.delete_records({TopicPartition(small.topic, 0): 7}).all()
    with pytest.raises(Exception, match=r"begins at 7 now, but the stream is at 5"):
        small.run_once()


def test_a_checkpoint_that_is_gone_is_no_silent_hole(small):
    small.apply(small.definition())
    small.clicks(10)
    small.run_once()
    shutil.rmtree(small.folder / "checkpoints")
    with pytest.raises(WrongCheckpoint, match="the checkpoint was lost"):
        small.run_once()


# ----------------------------------------------------------------------------------------------------- several versions
