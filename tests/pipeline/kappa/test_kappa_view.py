"""Kappa versions in Spark, over a broker, into both databases. The truth is always the query run from scratch.

Most run once, and end by themselves: that is the same code. ``ways`` runs a test as a view whose partial results are
combined, and as a stream.
"""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
from kappa_harness import KappaHarness

from headrace import Admin, TopicPartition
from headrace.pipeline.kappa import combined_store
from headrace.pipeline.kappa.checkpoint import WrongCheckpoint
from headrace.pipeline.kappa.stream import KappaStream
from headrace.pipeline.kappa.view import KappaView
from headrace.pipeline.lambda_ import speed_layer
from headrace.pipeline.lambda_.store import ProgressMoved
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.project.definition import FileText, KappaSettings, Watermark, start_ms
from headrace.pipeline.query.needed_columns import needed_columns
from headrace.pipeline.serving.catalog import Catalog, VersionState
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.failures import FailureKind, classify_failure, summary_of

pytestmark = pytest.mark.timeout(300)
ways = pytest.mark.parametrize("way", [KappaView, KappaStream], ids=["combined", "stream"])


@pytest.fixture
def harness(spark, kafka, database_url, tmp_path):
    """In both databases."""
    made = KappaHarness(spark, kafka.bootstrap_servers, database_url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def small(spark, kafka, sqlite_url, tmp_path):
    """In SQLite, for what is the same in both."""
    made = KappaHarness(spark, kafka.bootstrap_servers, sqlite_url, tmp_path)
    yield made
    made.close()


# ---------------------------------------------------------------------------------------------------------- one version


@ways
def test_a_version_is_the_query_over_the_log(harness, way):
    harness.way = way
    definition = harness.definition(dead_letters=f"{harness.topic}.dead")
    harness.apply(definition)
    harness.clicks(50)
    harness.produce(b"{nonsense", b"", key=b"k")
    running = harness.run_once()
    assert harness.catalog.version("pages", 1).state is VersionState.REPLAYING
    harness.check(definition)
    assert (running.lag().records, running.lag().total) == (0, 52)
    progress = harness.progress()
    assert (progress.events, progress.dead_letters, progress.dropped_late) == (52, 2, 0)
    assert progress.offsets == {harness.topic: {0: 26, 1: 26}}
    letters = harness.messages(definition.dead_letters)
    assert {(one.value, dict(one.headers)["headrace.offset"]) for one in letters} == {
        (b"{nonsense", b"25"),
        (b"", b"25"),
    }

    harness.clicks(20, pages=9)  # old keys and new ones
    running = harness.run_once()
    harness.check(definition)
    progress = harness.progress()
    assert (progress.events, progress.dead_letters, progress.batch_id) == (72, 2, 1)
    assert len(harness.messages(definition.dead_letters)) == 2, "the second batch had none"
    assert running.context.metrics.of("pages", 1).events == 20
    with Admin(bootstrap_servers=harness.bootstrap) as admin:
        told = admin.list_group_offsets("headrace.pages.v1")  # of other tests' topics too: they share the broker
        assert [told[TopicPartition(harness.topic, partition)].offset for partition in (0, 1)] == [36, 36]

    assert what_is_there(harness) == {"table", "group"} | ({"checkpoint"} if way is KappaStream else set())
    for _ in range(2):  # half of it may be done already
        running.drop()
        assert what_is_there(harness) == set()


def what_is_there(harness: KappaHarness) -> set[str]:
    """Of the first version, outside of the catalog."""
    with harness.database.read() as reader, Admin(bootstrap_servers=harness.bootstrap) as admin:
        is_there = {
            "table": reader.dialect.has_table(reader, "pages__v1"),
            "checkpoint": (harness.folder / "checkpoints" / "pages" / "v1").exists(),
            "group": "headrace.pages.v1" in [group.group_id for group in admin.list_groups()],
        }
    return {name for name, there in is_there.items() if there}


def test_what_is_dropped_may_never_have_run(small):
    small.apply(small.definition())
    KappaView(small.context(), small.catalog.version("pages", 1)).drop()
    assert what_is_there(small) == set()
    assert small.progress() is None


class Killed(Exception):
    """As good as ``kill -9`` for what is in the database: nothing after it is done."""


RAISES = """
from pyspark.sql import functions as F

def number(ms):
    raise ValueError(f"{ms} is no number")

def pages(events):
    return events.select("page", F.udf(number, "long")("ms").alias("ms")).groupBy("page").agg(F.max("ms").alias("ms"))
"""


@ways
def test_a_function_that_raises_fails_the_version_for_good_and_sends_no_dead_letters(small, way):
    small.way = way
    made = small.definition(dead_letters=f"{small.topic}.dead")
    definition = replace(made, query=FileText("queries.py", RAISES, "pages"))
    small.apply(definition)
    small.clicks(3)
    small.produce(b"bad")
    failure = small.start().failure()
    assert classify_failure(failure) is FailureKind.PERMANENT
    assert re.fullmatch(r"ValueError: \d is no number", summary_of(failure))
    with Admin(bootstrap_servers=small.bootstrap) as admin:
        assert definition.dead_letters not in admin.list_topics()


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


@ways
def test_killed_inside_of_the_transaction_and_between_the_commit_and_the_checkpoint(small, way):
    small.way = way
    definition = small.definition(dead_letters=f"{small.topic}.dead")
    small.apply(definition)
    small.clicks(30)
    small.produce(b"bad")
    with pytest.raises(Killed):
        small.run_once(catalog=DiesInTransaction(small.database))
    assert small.progress() is None
    assert small.rows() == []

    dying = DiesAfterCommit(small.project.serving_url, commits=2)
    with pytest.raises(Killed):
        small.run_once(database=dying)
    dying.close()
    after = small.progress()
    assert (after.batch_id, after.events, after.dead_letters) == (0, 31, 1)
    small.check(definition)
    assert not list((small.folder / "checkpoints/pages/v1/commits").glob("[0-9]*"))

    small.clicks(10)
    small.run_once()  # the same batch again, which is passed over, and the next one
    small.check(definition)
    after = small.progress()
    assert (after.batch_id, after.events, after.dead_letters) == (1, 41, 1)
    assert len(small.messages(definition.dead_letters)) == 1, "the first attempt had sent it, and noted that"


class EndsTheThread(Catalog):
    def set_progress(self, connection, progress):
        raise SystemExit(3)


@ways
def test_what_is_no_exception_ends_the_version_too(small, way):
    """py4j tells Java of exceptions only: a stream would wait for ever."""
    small.way = way
    small.apply(small.definition())
    small.clicks(5)
    with pytest.raises(SystemExit):
        small.run_once(catalog=EndsTheThread(small.database))
    assert small.progress() is None


# -------------------------------------------------------------------------------------------------------------- queries


@ways
def test_sorted_groups_are_replaced_as_a_whole_and_keep_their_order(small, way):
    small.way = way
    definition = small.definition("SELECT page, count(*) AS n FROM events GROUP BY page ORDER BY n DESC, page LIMIT 3")
    small.apply(definition)
    small.clicks(30, pages=5)
    small.run_once()
    assert small.rows() == [("p0", 6), ("p1", 6), ("p2", 6)]
    small.produce(*({"page": "p4"} for _ in range(5)))
    small.run_once()
    assert small.rows() == small.truth(definition) == [("p4", 11), ("p0", 6), ("p1", 6)]


@ways
def test_groups_that_fit_no_more_are_hidden(small, way):
    small.way = way
    definition = small.definition("SELECT upper(page) AS p, page, count(*) AS n FROM events GROUP BY page HAVING n < 3")
    small.apply(definition)
    small.clicks(5, pages=3)
    small.run_once()
    assert sorted(small.rows()) == [("P0", "p0", 2), ("P1", "p1", 2), ("P2", "p2", 1)]
    small.clicks(2, pages=3)
    small.run_once()
    assert small.rows() == small.truth(definition) == [("P2", "p2", 1)]


@ways
def test_hidden_groups_are_not_computed(small, way):
    small.way = way
    definition = small.definition("""SELECT page, 100 DIV (n - 1) AS share FROM
        (SELECT page, count(*) AS n FROM events GROUP BY page) WHERE n <> 1 AND 10 DIV (n - 1) > 1""")
    small.apply(definition)
    small.produce({"page": "a"}, {"page": "a"}, {"page": "once"}, *({"page": "often"} for _ in range(20)))
    small.run_once()
    assert small.rows() == small.truth(definition) == [("a", 100)]


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
    for hours in ((9, 12), (7, 12)):
        small.produce(*({"at": f"2026-11-16T{hour:02}:10:00Z"} for hour in hours))
        small.run_once()
    assert sorted(row[2] for row in small.rows()) == sorted(row[2] for row in small.truth(definition)) == [1, 1, 2]
    assert small.progress().dropped_late == 0


def test_sessions_that_grow_together_are_one(small):
    by_session = "SELECT page, session_window(at, '10 minutes') AS s, count(*) AS n FROM events GROUP BY 1, 2"
    small.apply(small.definition(by_session))
    for minutes, counts in (((0, 15, 40), [1, 1, 1]), ((8,), [1, 3])):
        small.produce(*({"page": "a", "at": f"2026-11-16T09:{minute:02}:00Z"} for minute in minutes))
        small.run_once()
        assert sorted(row[3] for row in small.rows()) == counts


def test_with_a_watermark_late_events_are_dropped_and_counted(small):
    by_hour = "SELECT window(at, '1 hour') AS w, count(*) AS n FROM events GROUP BY 1"
    small.apply(small.definition(by_hour, watermark=Watermark("at", "10 minutes")))
    for hours in ((9, 12), (9, 9, 12, 9, 7)):
        small.produce(*({"at": f"2026-11-16T{hour:02}:10:00Z"} for hour in hours))
        small.run_once()
    assert sorted(row[2] for row in small.rows()) == [1, 2]
    assert small.progress().dropped_late == 4, "events, not groups"
    assert small.progress().events == 7


@ways
def test_a_version_may_begin_at_a_time(small, way):
    small.way = way
    definition = small.definition(kappa=KappaSettings(start="2026-11-14T08:00:00Z"))
    small.apply(definition)
    for hour in (7, 8, 9):
        small.produce({"page": f"h{hour}"}, timestamp_ms=start_ms(f"2026-11-14T{hour:02}:00:00Z"))
    running = small.run_once()
    assert sorted(row[0] for row in small.rows()) == ["h8", "h9"]
    assert running.lag().total == 2


# -------------------------------------------------------------------------------------------------------- what was lost


@ways
def test_a_topic_that_was_made_anew_is_no_silent_hole(small, way):
    small.way = way
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
    with pytest.raises(DataLost, match="was deleted and created again since pages v1 last read it"):
        small.run_once()
    assert small.rows() == before
    small.apply(definition)
    small.run_once(2)
    small.check(definition, 2)


def test_a_log_that_was_cut_is_no_silent_hole(small):
    small.apply(small.definition())
    small.clicks(10)
    small.run_once()
    small.clicks(10)
    with Admin(bootstrap_servers=small.bootstrap) as admin:
        admin.delete_records({TopicPartition(small.topic, 0): 7}).all()
    with pytest.raises(DataLost, match=r"offsets 5 to 6 of .* are gone: the log begins at offset 7 now; to start over"):
        small.run_once()
    assert small.progress().events == 10


# -------------------------------------------------------------------------------------------------------- the two ways


def test_a_version_keeps_the_way_in_which_it_began(small):
    definition = small.definition()
    small.apply(definition)
    small.clicks(10)
    small.way = KappaStream
    small.run_once()
    small.way = KappaView
    small.clicks(5)
    small.run_once()
    small.check(definition)
    assert what_is_there(small) == {"table", "checkpoint", "group"}
    assert small.progress().batch_id == 1, "the second run continues the checkpoint of the first"


@pytest.mark.parametrize("stored", ["combine", "stream"])
def test_a_version_is_kept_in_the_way_that_the_catalog_has(small, stored):
    """Whatever the master is: ``apply`` has chosen by the master of the project, and ``status`` shows its choice."""
    definition = small.definition()
    version = small.apply(definition)
    with small.database.begin() as connection:
        small.catalog.set_definition(connection, "pages", version, definition.as_dict() | {"way": stored})
    small.clicks(5)
    name, other = "spark.headrace.viewsMaster", {"combine": "spark://master:7077", "stream": "local[2]"}
    small.spark.conf.set(name, other[stored])
    try:
        small.run_once()
    finally:
        small.spark.conf.unset(name)
    small.check(definition)
    assert ("checkpoint" in what_is_there(small)) is (stored == "stream")


def test_a_total_over_nothing_is_one_row(small):
    definition = small.definition("SELECT count(*) AS n, max(ms) AS ms FROM events")
    small.apply(definition)
    small.run_once()
    assert small.rows() == [(0, None)]
    small.clicks(4)
    small.run_once()
    assert small.rows() == [(4, 3)]


def test_a_large_micro_batch_is_read_by_tasks_and_merged_in_portions(small, monkeypatch):
    monkeypatch.setattr(speed_layer, "MAX_RECORDS_IN_DRIVER", 4)
    monkeypatch.setattr(speed_layer, "DRIVER_STEPS", 1)
    monkeypatch.setattr(combined_store, "_ROWS_PER_PORTION", 3)
    definition = small.definition(dead_letters=f"{small.topic}.dead")
    small.apply(definition)
    for clicks, pages in ((30, 7), (40, 11)):
        small.clicks(clicks, pages)
        small.produce(b"bad", key=b"k")
        small.run_once()
        small.check(definition)
    progress = small.progress()
    assert (progress.events, progress.dead_letters) == (72, 2)
    assert [letter.key for letter in small.messages(definition.dead_letters)] == [b"k", b"k"]


def test_another_process_that_writes_the_same_version_is_noticed(small):
    small.apply(small.definition())
    small.clicks(4)
    small.run_once()
    running = small.running()
    layer = running._chosen()._prepare()
    small.clicks(4)
    assert layer.step()
    with small.database.begin() as connection:
        small.catalog.set_progress(connection, replace(small.progress(), offsets={small.topic: {0: 3, 1: 4}}))
    small.clicks(4)
    with pytest.raises(ProgressMoved, match="another process writes this version"):
        layer.step()
    layer.close()


def test_a_log_that_was_cut_and_a_checkpoint_that_is_gone_are_no_silent_holes(small):
    small.way = KappaStream
    small.apply(small.definition())
    small.clicks(10)
    small.run_once()
    small.clicks(10)
    with Admin(bootstrap_servers=small.bootstrap) as admin:
        admin.delete_records({TopicPartition(small.topic, 0): 7}).all()
    with pytest.raises(
        DataLost, match=r"begins at offset 7 now, but the stream has read it only up " "to 5; to start over"
    ):
        small.run_once()
    shutil.rmtree(small.folder / "checkpoints")
    with pytest.raises(WrongCheckpoint, match="the checkpoint was lost"):
        small.run_once()
    assert small.progress().events == 10
