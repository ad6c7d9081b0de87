"""The parts of a Kappa version that need neither Spark nor a log: checkpoints, lag, data loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.kappa import stream as kappa_stream
from headrace.pipeline.kappa.checkpoint import WrongCheckpoint, check_belongs_to, parse_offset_file
from headrace.pipeline.kappa.view import KappaView
from headrace.pipeline.lambda_.batch_layer import FirstBatchSize
from headrace.pipeline.progress.data_loss import DataLost, check_same_topics, find_data_loss
from headrace.pipeline.progress.lag import Lag, LagTracker
from headrace.pipeline.project.definition import Decode, FileText, ViewDefinition, start_ms
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog, Progress
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.context import RunContext
from headrace.pipeline.version.metrics import PipelineMetrics
from headrace.testing import ManualClock

SETTINGS = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def test_the_offsets_of_a_batch_are_in_its_file():
    assert parse_offset_file(f'v1\n{SETTINGS}\n{{"clicks":{{"0":30,"11":10}}}}') == {"clicks": {0: 30, 11: 10}}
    two = f'v1\n{SETTINGS}\n{{"a":{{"0":30}}}}\n-\n{{"a":{{"0":20,"1":5}},"b":{{"0":1}}}}\n'
    assert parse_offset_file(two) == {"a": {0: 20, 1: 5}, "b": {0: 1}}
    with pytest.raises(AssertionError, match="format v9"):
        parse_offset_file(f"v9\n{SETTINGS}\n")


class Files:
    """A checkpoint with a number of batches planned and done, each of ten records."""

    path = "/checkpoints/pages/v1"

    def __init__(self, planned: int, done: int) -> None:
        self._planned, self._done = planned, done

    def offsets(self, batch_id: int):
        return at(batch_id) if batch_id < self._planned else None

    def last_committed_batch(self) -> int | None:
        return self._done - 1 if self._done else None


def at(batch_id: int):
    return {"clicks": {0: 10 * (batch_id + 1)}}


def committed(batch_id: int) -> Progress:
    return Progress("pages", 1, batch_id, at(batch_id))


@pytest.mark.parametrize(
    ("planned", "done", "last"), [(0, 0, -1), (1, 0, -1), (1, 0, 0), (1, 1, 0), (3, 2, 1), (3, 2, 2)]
)
def test_a_checkpoint_that_any_crash_may_leave(planned, done, last):
    check_belongs_to(Files(planned, done), committed(last) if last >= 0 else None, "pages v1")


@pytest.mark.parametrize(
    ("planned", "done", "last", "why"),
    [
        (0, 0, 4, "the checkpoint was lost"),
        (2, 2, 4, "the checkpoint was lost"),
        (3, 3, 1, "the database is older than the checkpoint"),
        (1, 1, -1, "the database is older than the checkpoint"),
    ],
)
def test_a_checkpoint_of_something_else(planned, done, last, why):
    with pytest.raises(WrongCheckpoint, match=why):
        check_belongs_to(Files(planned, done), committed(last) if last >= 0 else None, "pages v1")


def test_a_topic_made_anew_is_not_the_one_that_was_read():
    progress = Progress("pages", 1, 3, {"clicks": {0: 5}, "old": {0: 1}}, topic_ids={"clicks": "a"})
    check_same_topics(progress, {"clicks": "a", "old": "b", "new": "c"}, "pages v1")
    with pytest.raises(DataLost, match="'clicks' was deleted and created again since pages v1 last read it"):
        check_same_topics(progress, {"clicks": "x", "old": "b"}, "pages v1")
    with pytest.raises(DataLost, match="'old' no longer exists"):
        check_same_topics(progress, {"clicks": "a"}, "pages v1")


def test_what_a_source_says_of_lost_data_is_said_in_the_words_of_views():
    trace = "  raise DataLost(what)\nx.log_offsets.DataLost: a-0 is gone; set failOnDataLoss to false to go on\n"
    found = find_data_loss(RuntimeError(f"[STREAM_FAILED] ...\n{trace}"), "begin anew")
    assert str(found) == "a-0 is gone; begin anew"
    said = DataLost("a-0 is gone; set failOnDataLoss to false to go on")
    assert str(find_data_loss(said, "begin anew")) == "a-0 is gone; begin anew"
    assert find_data_loss(RuntimeError("else"), "begin anew") is None
    assert find_data_loss(DataLost("x"), "begin anew") is None


def test_how_far_behind():
    lag = LagTracker({"clicks": {0: 100, 1: 0}}, {}, {"clicks": {0: 1100, 1: 500}}, 0)
    assert lag.lag(0) == Lag(1500, 1500, 0.0)
    lag.committed({"clicks": {0: 600, 1: 250}}, 1_000)
    assert lag.lag(1_000) == Lag(750, 1500, 750.0)
    lag.observed({"clicks": {0: 1100, 1: 600, 2: 50}})  # a partition more
    lag.observed({"clicks": {0: 1000}})  # old news
    assert lag.lag(1_000) == Lag(900, 1650, 750.0)
    lag.committed({"clicks": {0: 1100, 1: 600, 2: 50}}, 2_000)
    assert lag.lag(2_000) == Lag(0, 1650, 825.0)
    assert lag.lag(100_000).per_s == pytest.approx(1650 / 98)


def test_an_answer_is_complete_as_of_the_last_look_at_the_log_whose_records_are_all_committed():
    lag = LagTracker({"clicks": {0: 100}}, {}, {"clicks": {0: 110}}, 0)
    lag.observed({"clicks": {0: 110}}, at_ms=1_000)
    assert lag.lag(0).complete_ms is None
    lag.observed({"clicks": {0: 120}}, at_ms=2_000)
    lag.committed({"clicks": {0: 115}}, 0)
    assert lag.lag(0).complete_ms == 1_000
    lag.committed({"clicks": {0: 120}}, 0)
    assert lag.lag(0).complete_ms == 2_000
    lag.observed({"clicks": {0: 120}}, at_ms=9_000)  # nothing new on a quiet topic
    assert lag.lag(0).complete_ms == 9_000
    lag.observed({"clicks": {0: 121}}, at_ms=10_000)
    lag.observed({"clicks": {0: 120}}, at_ms=8_000)  # old news
    assert lag.lag(0).complete_ms == 9_000
    lag.reached_the_end(11_000)
    assert lag.lag(0).complete_ms == 11_000


def test_a_partition_whose_records_were_all_deleted_does_not_keep_an_answer_from_being_complete():
    lag = LagTracker({"clicks": {0: 7, 1: 3}}, {}, {"clicks": {0: 7, 1: 3}}, 0)
    lag.observed({"clicks": {0: 7, 1: 3}}, at_ms=5)
    assert lag.lag(0).complete_ms == 5


@pytest.mark.parametrize(("read", "share"), [(0, 0), (300, 100), (600, 200), (900, 300), (5_000, 300)])
def test_the_first_batch_of_a_lambda_view_reads_records_several_times(read, share):
    assert FirstBatchSize(records=300, reads=900).records_after(read) == share
    assert FirstBatchSize(records=0, reads=0).records_after(read) == 0


def test_the_rate_is_that_of_late():
    lag = LagTracker({}, {}, {}, 0)
    for second in range(1, 60):
        lag.committed({"clicks": {0: 1000 * min(second, 30) + 10 * second}}, second * 1000)
    assert lag.lag(59_000).per_s == pytest.approx(10)


def test_a_log_with_nothing_in_it_is_read():
    lag = LagTracker({"clicks": {0: 7}}, {}, {"clicks": {0: 9}}, 0)
    lag.reached_the_end()
    assert lag.lag(0).records == 0


def test_the_guide_has_the_sizes_of_batches():
    guide = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text()
    most, most_grouped, of_task = (
        kappa_stream._MAX_RECORDS,
        kappa_stream._MAX_GROUPED_RECORDS,
        kappa_stream._MAX_TASK_RECORDS,
    )
    assert f"a task of a Kappa view reads at most {of_task:,} records" in guide
    assert f"has at most {most_grouped:,} records, or {most:,} for a query that does not group." in guide


def test_a_start_in_time():
    assert start_ms("2026-11-16T08:00:00Z") == start_ms("2026-11-16 09:00:00+01:00") == start_ms("2026-11-16T08:00")


@pytest.mark.parametrize(("way", "maintain"), [("stream", ""), ("", "stream")])
def test_a_version_that_asks_for_a_stream_is_one(sqlite_url, tmp_path, way, maintain):
    database = Database(sqlite_url)
    catalog = Catalog(database)
    query = FileText("views/pages.sql", "SELECT page, count(*) AS n FROM events GROUP BY page")
    definition = ViewDefinition(
        "pages", ("clicks",), "", "kappa", query, Decode("json", "page STRING"), maintain=maintain
    )
    catalog.create_view("pages", "kappa", definition.definition_hash)
    version = catalog.add_version("pages", definition.as_dict() | {"way": way}, definition.definition_hash)
    project = Project(tmp_path, "127.0.0.1:1", sqlite_url, str(tmp_path / "archive"), "local[1]")
    context = RunContext(None, project, database, catalog, ManualClock(), "checkpoints", PipelineMetrics())
    assert isinstance(KappaView(context, version)._chosen(), kappa_stream.KappaStream)
    database.close()
