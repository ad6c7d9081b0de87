"""A version of a Lambda view as the runner uses it: start, request batches, stop, fail, drop."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from lambda_harness import FIRST, QUERY, SECOND, LambdaHarness, answer, until
from lambda_harness import first_batch_first as first_batch_first
from lambda_harness import quick as quick

from headrace import Admin, TopicPartition
from headrace.client.errors import UnknownTopic
from headrace.pipeline.lambda_.batch_layer import BatchLayer
from headrace.pipeline.lambda_.view import LambdaView
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.serving.catalog import VersionEvent, VersionState
from headrace.pipeline.serving.database import Database
from headrace.pipeline.version.failures import FailureKind, classify_failure
from headrace.pipeline.version.running_version import Refused
from headrace.pipeline.version.work_in_flight import Work
from headrace.runtime.clock import SystemClock

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def database(sqlite_url):
    opened = Database(sqlite_url)
    yield opened
    opened.close()


@pytest.fixture
def harness(spark, kafka, database, tmp_path):
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made


def state_of(harness: LambdaHarness) -> VersionState:
    return harness.context.catalog.version(*harness.key).state


@contextmanager
def running(harness: LambdaHarness):
    """As the runner starts and stops one, whatever it was before."""
    catalog = harness.context.catalog
    for event in {VersionState.STARTING: ()}.get(state_of(harness), (VersionEvent.STOPPED, VersionEvent.RESTARTED)):
        catalog.set_state(*harness.key, event)
    view = LambdaView(harness.context, catalog.version(*harness.key))
    view.start()
    try:
        yield view
    finally:
        view.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(view.label)]


def caught_up(harness: LambdaHarness, view: LambdaView) -> None:
    until(lambda: view.failure() is not None or view.has_caught_up(), "caught up")
    assert view.failure() is None
    until(lambda: view.failure() is not None or offsets(harness) == harness.ends(), "at the end of the log")
    assert view.failure() is None


def offsets(harness: LambdaHarness):
    with harness.context.database.read() as connection:
        progress = harness.context.catalog.progress(connection, *harness.key)
    return None if progress is None else progress.offsets


def batches(harness: LambdaHarness) -> list[int]:
    with harness.context.database.read() as connection:
        return [each.batch for each in harness.context.catalog.batches(connection, *harness.key)]


def ask(harness: LambdaHarness, view: LambdaView, **detail: bool) -> str | None:
    """Returns the outcome of a request."""
    catalog = harness.context.catalog
    number = catalog.add_request(harness.version.view, "batch", detail)
    request = catalog.request(number)
    assert request is not None
    assert view.request(request)
    until(lambda: catalog.request(number).done_ms is not None, "an answer")
    return catalog.request(number).error


def test_a_version_from_its_first_batch_on(harness):
    harness.send(*FIRST)
    with running(harness) as view:
        assert state_of(harness) is VersionState.REPLAYING
        caught_up(harness, view)
        with harness.context.database.read() as connection:
            assert view.select_sql(connection) == harness.context.catalog.version(*harness.key, connection).select_sql
        harness.serve()
        assert harness.check().dead_letters == 1
        harness.send(*SECOND)
        caught_up(harness, view)
        assert harness.check().events == 10
        assert ask(harness, view) is None
        assert batches(harness) == [2]
        harness.check()
        assert ask(harness, view, full=True) is None
        assert batches(harness) == [3]
        assert harness.context.metrics.of(*harness.key).batches == 3
        harness.check()
        restart = harness.context.catalog.add_request(harness.version.view, "restart")
        with pytest.raises(Refused, match="has no request 'restart'"):
            view.request(harness.context.catalog.request(restart))
    harness.send(("home", 1000))
    with running(harness) as view:
        caught_up(harness, view)
        assert batches(harness) == [3], "what was there is not computed again"
        harness.check()
    assert not view.request(harness.context.catalog.request(restart - 1)), "it has stopped"


def test_batches_by_schedule(spark, kafka, database, tmp_path):
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, batch_every_ms=1) as harness:
        with running(harness) as view:
            caught_up(harness, view)
            harness.send(*FIRST)
            caught_up(harness, view)
            until(lambda: batches(harness)[-1] >= 2, "a batch")
            assert view.failure() is None
        harness.serve()
        harness.check()


class LaterClock(SystemClock):
    """The system's, which can be set ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_what_came_is_archived_from_time_to_time_even_without_batches(spark, kafka, database, tmp_path):
    clock = LaterClock()
    with (
        LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, clock=clock) as harness,
        running(harness) as view,
    ):
        caught_up(harness, view)
        harness.send(*FIRST)
        caught_up(harness, view)
        assert harness.context.archive.ends(harness.topic) != harness.ends()[harness.topic]
        clock.ahead_ms = 3_600_000
        until(lambda: harness.context.archive.ends(harness.topic) == harness.ends()[harness.topic], "archived")
        assert view.failure() is None
        assert batches(harness) == [1]


def test_once(harness):
    harness.send(*FIRST)
    LambdaView(harness.context, harness.version).run_once()
    harness.serve()
    assert harness.check().offsets == harness.ends()
    harness.send(*SECOND)
    for event in (VersionEvent.STOPPED, VersionEvent.RESTARTED):
        harness.context.catalog.set_state(*harness.key, event)
    LambdaView(harness.context, harness.context.catalog.version(*harness.key)).run_once()
    assert harness.check().offsets == harness.ends()
    assert batches(harness) == [2]


def test_what_retention_overtook_begins_anew_as_the_errors_say(harness):
    catalog, place = harness.context.catalog, TopicPartition(harness.topic, 0)
    harness.send(*FIRST)
    LambdaView(harness.context, harness.version).run_once()
    harness.send(*SECOND)
    for event in (VersionEvent.STOPPED, VersionEvent.RESTARTED):
        catalog.set_state(*harness.key, event)
    with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        admin.delete_records({place: 4}).all()
    with pytest.raises(DataLost, match=rf"of {place} are gone: .* move (\S+) and (\S+) away$") as caught:
        LambdaView(harness.context, catalog.version(*harness.key)).run_once()
    assert "failOnDataLoss" not in str(caught.value)

    anew = catalog.add_version(harness.version.view, harness.definition.as_dict(), harness.definition.definition_hash)
    with pytest.raises(
        DataLost, match=r"were deleted from the log before they were archived.* move " r"(\S+) and (\S+) away$"
    ) as caught:
        LambdaView(harness.context, anew).run_once()
    for folder in re.search(r"move (\S+) and (\S+) away$", str(caught.value)).groups():
        Path(folder.removeprefix("file:")).rename(harness.context.project.folder / Path(folder).name)
    harness.version = catalog.add_version(harness.version.view, harness.definition.as_dict(), "anew")
    LambdaView(harness.context, harness.version).run_once()
    harness.serve()
    left = [event for event in (*harness.sent[0][4:], *harness.sent[1]) if event is not None]
    assert harness.seen()[0] == answer(QUERY, left)


@pytest.fixture
def impatient_harness(spark, kafka, database, tmp_path):
    """Does not ask for a minute whether a topic is really gone."""
    options = {"default.api.timeout.ms": "5000"}
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, log_options=options) as made:
        yield made


def test_a_topic_that_is_gone_or_made_anew_ends_a_version_and_readers_go_on(impatient_harness):
    harness = impatient_harness
    harness.send(*FIRST)
    with running(harness) as view, Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        caught_up(harness, view)
        harness.serve()
        shown = harness.check()
        admin.delete_topic(harness.topic)
        until(lambda: view.failure() is not None, "a failure")
        assert isinstance(view.failure(), DataLost | UnknownTopic)
        admin.create_topic(harness.topic, num_partitions=2)
    for number in range(20):
        harness.producer.send(harness.topic, b"{}", partition=number % 2)
    harness.producer.flush()
    with running(harness) as view:
        until(lambda: view.failure() is not None, "a failure")
        assert isinstance(view.failure(), DataLost)
        assert "created again" in str(view.failure())
    assert harness.check() == shown


def test_a_batch_that_fails_for_a_while_stops_nothing(harness, monkeypatch):
    harness.send(*FIRST)
    with running(harness) as view:
        caught_up(harness, view)
        harness.serve()

        def away(*_: object) -> None:
            raise ConnectionError("the archive's machine is away")

        with monkeypatch.context() as patched:
            patched.setattr(BatchLayer, "run", away)
            assert "is away" in (ask(harness, view) or "")
        harness.send(*SECOND)
        caught_up(harness, view)
        assert ask(harness, view) is None
        harness.check()

        def wrong(*_: object) -> None:
            raise DataLost("all gone")

        monkeypatch.setattr(BatchLayer, "run", wrong)
        assert ask(harness, view) == "all gone"
        until(lambda: view.failure() is not None, "a failure")
        assert isinstance(view.failure(), DataLost)
    harness.check()


def test_stopping_does_not_wait_for_a_batch(harness):
    harness.send(*FIRST)
    has_begun = threading.Event()
    sleeping = harness.context.spark.range(1).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L)")

    def run(*_: object) -> None:
        has_begun.set()
        sleeping.collect()

    with running(harness) as view:
        caught_up(harness, view)
        harness.serve()
        view._layers.batch.run = run
        number = harness.context.catalog.add_request(harness.version.view, "batch")
        assert view.request(harness.context.catalog.request(number))
        assert has_begun.wait(60)
        view.stop(60)
        assert view.failure() is None
        assert harness.context.catalog.request(number).done_ms is None, "the next runner answers"
    harness.check()


@pytest.mark.parametrize("how", ["never started", "after a batch"])
def test_nothing_is_left_of_one_that_was_dropped(harness, how):
    harness.send(*FIRST)
    if how == "after a batch":
        with running(harness) as view:
            caught_up(harness, view)
            ask(harness, view, full=True)
    view = LambdaView(harness.context, harness.version)
    view.drop()
    with harness.context.database.read() as connection:
        left = sqlalchemy.inspect(connection).get_table_names()
    assert [name for name in left if not name.startswith("headrace_")] == []
    view.drop()


def test_an_error_that_will_not_pass_ends_the_version_at_once_without_dead_letters(spark, kafka, database, tmp_path):
    query = "SELECT page, sum(1 / (ms - 2)) AS share FROM events GROUP BY page"
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, query=query) as harness:
        harness.send(*FIRST)  # one has 2 ms, and one does not decode
        with running(harness) as view:
            until(lambda: view.failure() is not None, "it fails")
            assert classify_failure(view.failure()) is FailureKind.PERMANENT
            assert view.work.unfinished() == {Work.BATCH}
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            assert harness.definition.dead_letters not in admin.list_topics()
