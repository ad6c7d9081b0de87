"""A version of a Lambda view as the runner has it: started, asked for batches, stopped, failed, dropped."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from lambda_worlds import FIRST, QUERY, SECOND, World, answer, until
from lambda_worlds import quick as quick

from headrace import Admin, TopicPartition
from headrace.client.errors import UnknownTopic
from headrace.pipeline.batch_layer import BatchLayer
from headrace.pipeline.failures import Verdict, verdict_on
from headrace.pipeline.lambda_view import LambdaView
from headrace.pipeline.log_offsets import DataLost
from headrace.pipeline.running import Refused
from headrace.pipeline.serving.catalog import Event, State
from headrace.pipeline.serving.database import Database
from headrace.pipeline.work_in_flight import Work
from headrace.runtime.clock import SystemClock

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def database(sqlite_url):
    opened = Database(sqlite_url)
    yield opened
    opened.close()


@pytest.fixture
def world(spark, kafka, database, tmp_path):
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made


def state_of(world: World) -> State:
    return world.around.catalog.version(*world.who).state


@contextmanager
def running(world: World):
    """As the runner starts and stops one, whatever it was before."""
    catalog = world.around.catalog
    for event in {State.STARTING: ()}.get(state_of(world), (Event.STOPPED, Event.RESTARTED)):
        catalog.set_state(*world.who, event)
    view = LambdaView(world.around, catalog.version(*world.who))
    view.start()
    try:
        yield view
    finally:
        view.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(view.who)]


def caught_up(world: World, view: LambdaView) -> None:
    until(lambda: view.failure() is not None or view.has_caught_up(), "caught up")
    assert view.failure() is None
    until(lambda: view.failure() is not None or offsets(world) == world.ends(), "at the end of the log")
    assert view.failure() is None


def offsets(world: World):
    with world.around.database.read() as connection:
        progress = world.around.catalog.progress(connection, *world.who)
    return None if progress is None else progress.offsets


def batches(world: World) -> list[int]:
    with world.around.database.read() as connection:
        return [each.batch for each in world.around.catalog.batches(connection, *world.who)]


def ask(world: World, view: LambdaView, **detail: bool) -> str | None:
    """What came of a request."""
    catalog = world.around.catalog
    number = catalog.ask(world.version.view, "batch", detail)
    request = catalog.request(number)
    assert request is not None
    assert view.request(request)
    until(lambda: catalog.request(number).done_ms is not None, "an answer")
    return catalog.request(number).error


def test_a_version_from_its_first_batch_on(world):
    world.send(*FIRST)
    with running(world) as view:
        assert state_of(world) is State.REPLAYING
        caught_up(world, view)
        with world.around.database.read() as connection:
            assert view.select_sql(connection) == world.around.catalog.version(*world.who, connection).select_sql
        world.serve()
        assert world.check().dead_letters == 1
        world.send(*SECOND)
        caught_up(world, view)
        assert world.check().events == 10
        assert ask(world, view) is None
        assert batches(world) == [2]
        world.check()
        assert ask(world, view, full=True) is None
        assert batches(world) == [3]
        world.check()
        restart = world.around.catalog.ask(world.version.view, "restart")
        with pytest.raises(Refused, match="has no restart"):
            view.request(world.around.catalog.request(restart))
    world.send(("home", 1000))
    with running(world) as view:
        caught_up(world, view)
        assert batches(world) == [3], "what was there is not computed again"
        world.check()
    assert not view.request(world.around.catalog.request(restart - 1)), "it has stopped"


def test_batches_by_schedule(spark, kafka, database, tmp_path):
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path, batch_every_ms=1) as world:
        with running(world) as view:
            caught_up(world, view)
            world.send(*FIRST)
            caught_up(world, view)
            until(lambda: batches(world)[-1] >= 2, "a batch")
            assert view.failure() is None
        world.serve()
        world.check()


class LaterClock(SystemClock):
    """The system's, which can be set ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def test_what_came_is_archived_from_time_to_time_even_without_batches(spark, kafka, database, tmp_path):
    clock = LaterClock()
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path, clock=clock) as world, running(world) as view:
        caught_up(world, view)
        world.send(*FIRST)
        caught_up(world, view)
        assert world.around.archive.ends(world.topic) != world.ends()[world.topic]
        clock.ahead_ms = 3_600_000
        until(lambda: world.around.archive.ends(world.topic) == world.ends()[world.topic], "archived")
        assert view.failure() is None
        assert batches(world) == [1]


def test_once(world):
    world.send(*FIRST)
    LambdaView(world.around, world.version).run_once()
    world.serve()
    assert world.check().offsets == world.ends()
    world.send(*SECOND)
    for event in (Event.STOPPED, Event.RESTARTED):
        world.around.catalog.set_state(*world.who, event)
    LambdaView(world.around, world.around.catalog.version(*world.who)).run_once()
    assert world.check().offsets == world.ends()
    assert batches(world) == [2]


def test_what_retention_overtook_begins_anew_as_the_errors_say(world):
    catalog, place = world.around.catalog, TopicPartition(world.topic, 0)
    world.send(*FIRST)
    LambdaView(world.around, world.version).run_once()
    world.send(*SECOND)
    for event in (Event.STOPPED, Event.RESTARTED):
        catalog.set_state(*world.who, event)
    with Admin(bootstrap_servers=world.around.project.bootstrap) as admin:
        admin.delete_records({place: 4}).all()
    with pytest.raises(DataLost, match=rf"of {place} are gone: .* move (\S+) and (\S+) away$") as caught:
        LambdaView(world.around, catalog.version(*world.who)).run_once()
    assert "failOnDataLoss" not in str(caught.value)

    anew = catalog.add_version(world.version.view, world.definition.as_dict(), world.definition.definition_hash)
    with pytest.raises(DataLost, match=r"were not archived .* move (\S+) and (\S+) away$") as caught:
        LambdaView(world.around, anew).run_once()
    for folder in re.search(r"move (\S+) and (\S+) away$", str(caught.value)).groups():
        Path(folder.removeprefix("file:")).rename(world.around.project.folder / Path(folder).name)
    world.version = catalog.add_version(world.version.view, world.definition.as_dict(), "anew")
    LambdaView(world.around, world.version).run_once()
    world.serve()
    left = [event for event in (*world.sent[0][4:], *world.sent[1]) if event is not None]
    assert world.seen()[0] == answer(QUERY, left)


@pytest.fixture
def impatient_world(spark, kafka, database, tmp_path):
    """Does not ask for a minute whether a topic is really gone."""
    options = {"default.api.timeout.ms": "5000"}
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path, log_options=options) as made:
        yield made


def test_a_topic_that_is_gone_or_made_anew_ends_a_version_and_readers_go_on(impatient_world):
    world = impatient_world
    world.send(*FIRST)
    with running(world) as view, Admin(bootstrap_servers=world.around.project.bootstrap) as admin:
        caught_up(world, view)
        world.serve()
        shown = world.check()
        admin.delete_topic(world.topic)
        until(lambda: view.failure() is not None, "a failure")
        assert isinstance(view.failure(), DataLost | UnknownTopic)
        admin.create_topic(world.topic, num_partitions=2)
    for number in range(20):
        world.producer.send(world.topic, b"{}", partition=number % 2)
    world.producer.flush()
    with running(world) as view:
        until(lambda: view.failure() is not None, "a failure")
        assert isinstance(view.failure(), DataLost)
        assert "made anew" in str(view.failure())
    assert world.check() == shown


def test_a_batch_that_fails_for_a_while_stops_nothing(world, monkeypatch):
    world.send(*FIRST)
    with running(world) as view:
        caught_up(world, view)
        world.serve()

        def away(*_: object) -> None:
            raise ConnectionError("the archive's machine is away")

        with monkeypatch.context() as patched:
            patched.setattr(BatchLayer, "run", away)
            assert "is away" in (ask(world, view) or "")
        world.send(*SECOND)
        caught_up(world, view)
        assert ask(world, view) is None
        world.check()

        def wrong(*_: object) -> None:
            raise DataLost("all gone")

        monkeypatch.setattr(BatchLayer, "run", wrong)
        assert ask(world, view) == "all gone"
        until(lambda: view.failure() is not None, "a failure")
        assert isinstance(view.failure(), DataLost)
    world.check()


def test_stopping_does_not_wait_for_a_batch(world):
    world.send(*FIRST)
    has_begun = threading.Event()
    sleeping = world.around.spark.range(1).selectExpr("reflect('java.lang.Thread', 'sleep', 600000L)")

    def run(*_: object) -> None:
        has_begun.set()
        sleeping.collect()

    with running(world) as view:
        caught_up(world, view)
        world.serve()
        view._layers.batch.run = run
        number = world.around.catalog.ask(world.version.view, "batch")
        assert view.request(world.around.catalog.request(number))
        assert has_begun.wait(60)
        view.stop(60)
        assert view.failure() is None
        assert world.around.catalog.request(number).done_ms is None, "whoever runs it next answers"
    world.check()


@pytest.mark.parametrize("how", ["never started", "after a batch"])
def test_nothing_is_left_of_one_that_was_dropped(world, how):
    world.send(*FIRST)
    if how == "after a batch":
        with running(world) as view:
            caught_up(world, view)
            ask(world, view, full=True)
    view = LambdaView(world.around, world.version)
    view.drop()
    with world.around.database.read() as connection:
        left = sqlalchemy.inspect(connection).get_table_names()
    assert [name for name in left if not name.startswith("headrace_")] == []
    view.drop()


def test_an_error_that_will_not_pass_ends_the_version_at_once_without_dead_letters(spark, kafka, database, tmp_path):
    query = "SELECT page, sum(1 / (ms - 2)) AS share FROM events GROUP BY page"
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path, query=query) as world:
        world.send(*FIRST)  # one has 2 ms, and one does not decode
        with running(world) as view:
            until(lambda: view.failure() is not None, "it fails")
            assert verdict_on(view.failure()) is Verdict.PERMANENT
            assert view.work.suspects() == {Work.BATCH}
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            assert world.definition.dead_letters not in admin.list_topics()
