"""The speed layer on a real log: after each step the view is the query over exactly the progress."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from lambda_harness import FIRST, QUERY, SECOND, TOTAL, LambdaHarness, until

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.errors import UnknownTopic
from headrace.pipeline.decoding.dead_letters import DeadLetters
from headrace.pipeline.lambda_ import speed_layer, speed_log
from headrace.pipeline.lambda_.speed_layer import SpeedLayer
from headrace.pipeline.lambda_.store import LambdaStore
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.project.definition import FileText
from headrace.pipeline.serving.catalog_tables.sent_dead_letters import SentDeadLetters
from headrace.pipeline.serving.database import Database
from headrace.pipeline.serving.errors import DatabaseUnreachable
from headrace.testing import ManualClock

pytestmark = pytest.mark.timeout(300)
#: The same answer; but what makes several rows of one takes a job.
BY_JOB = QUERY.replace("FROM events", "FROM events LATERAL VIEW explode(array(1)) AS one")


@pytest.fixture
def make(spark, kafka, sqlite_url, tmp_path):
    """Makes harnesses whose view has read nothing and shows nothing, with their speed layers."""
    opened = []

    def made(query: str = QUERY, **options):
        database = Database(sqlite_url)
        manager = LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, query=query, **options)
        harness = manager.__enter__()
        store = harness.store()
        assert store.batch_tables.load(1, {}, []) == (query == TOTAL)
        store.commit_batch(1, {})
        harness.serve()
        opened.append((manager, database))
        layer = speed(harness, store)
        opened.append((layer, None))
        return harness, store, layer

    yield made
    for one, database in reversed(opened):
        one.close() if database is None else one.__exit__(None, None, None)
        if database is not None:
            database.close()


def speed(harness: LambdaHarness, store: LambdaStore) -> SpeedLayer:
    notes = SentDeadLetters(harness.context.database, *harness.key)
    dead_letters = DeadLetters(harness.context.project, harness.definition, notes)
    return SpeedLayer(harness.context, harness.definition, store, store.algebra, dead_letters)


def dead_letters_of(harness: LambdaHarness) -> list[tuple[bytes | None, dict[str, bytes]]]:
    place = TopicPartition(harness.definition.dead_letters, 0)
    with Consumer(bootstrap_servers=harness.context.project.bootstrap) as consumer:
        wanted = consumer.end_offsets(place)[place]
        consumer.assign([place])
        consumer.seek(place, 0)
        found = []
        until(lambda: len(found.__iadd__(consumer.poll(100))) >= wanted, "all dead letters")
    return [(record.value, dict(record.headers)) for record in found]


@pytest.mark.parametrize("query", [QUERY, BY_JOB], ids=["here", "by_job"])
def test_a_step_that_fails_and_is_done_again_sends_its_dead_letters_once(make, monkeypatch, query):
    harness, store, layer = make(query)
    harness.send(*FIRST)

    def fails(*_, **__):
        raise DatabaseUnreachable("away")

    for tries in (layer, speed(harness, store)):  # the second as after a crash
        with monkeypatch.context() as patch:
            patch.setattr(store, "commit_micro_batch", fails)
            with pytest.raises(DatabaseUnreachable):
                tries.step()
    harness.send(*SECOND)
    after = speed(harness, store)
    assert after.step()
    assert harness.check().dead_letters == 2
    letters = dead_letters_of(harness)
    assert len({(headers["headrace.partition"], headers["headrace.offset"]) for _, headers in letters}) == 2
    assert len(letters) == 2
    for each in (tries, after):
        each.close()


@pytest.mark.parametrize("query", [QUERY, TOTAL, BY_JOB], ids=["by page", "total", "by jobs"])
def test_after_each_step_the_view_is_the_query_over_the_progress(make, monkeypatch, query):
    harness, store, layer = make(query)
    harness.definition = replace(harness.definition, query=FileText("q.sql", QUERY if query == BY_JOB else query))
    assert layer.step() is False
    for events in (FIRST, SECOND):
        harness.send(*events)
        assert layer.step() is True
        assert harness.check().offsets == harness.ends()
        assert layer.step() is False
    monkeypatch.setattr(speed_layer, "MAX_RECORDS_IN_DRIVER", 4)  # more is for Spark's tasks to read
    monkeypatch.setattr(speed_layer, "DRIVER_STEPS", 1)
    harness.send(*FIRST, *SECOND)
    assert layer.step() is True
    progress = harness.check()
    assert (progress.offsets, progress.events, progress.dead_letters) == (harness.ends(), 20, 4)
    assert [each.span for each in store.spans()] == [1, 2, 3]
    letters = dead_letters_of(harness)
    assert [value for value, _ in letters] == [b"{"] * 4
    places = {(int(h["headrace.partition"]), int(h["headrace.offset"])) for _, h in letters}
    assert places == {(at, n) for at, sent in harness.sent.items() for n, event in enumerate(sent) if event is None}
    counts = harness.context.metrics.of(*harness.key)
    assert (counts.micro_batches, counts.events, counts.dead_letters) == (3, 20, 4)


def test_a_step_takes_so_much_and_the_next_one_the_rest(make, monkeypatch):
    monkeypatch.setattr(speed_layer, "MAX_RECORDS", 4)
    harness, _, layer = make()
    harness.send(*FIRST, *SECOND)
    assert layer.lag().records is None
    seen = []
    while layer.step():
        harness.check()
        seen.append(layer.lag().records)
    assert seen == [6, 2, 0]
    assert layer.lag().total == 10


def test_it_waits_for_the_first_batch(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as harness:
        harness.send(*FIRST)
        store = harness.store()
        layer = speed(harness, store)
        assert layer.step() is False
        store.batch_tables.load(1, {}, [])
        store.commit_batch(1, {})
        harness.serve()
        assert layer.step() is True
        assert harness.check().offsets == harness.ends()
        layer.close()
    database.close()


def test_what_was_not_committed_is_done_again(make, monkeypatch):
    harness, store, layer = make()
    harness.send(*FIRST)

    def away(*_: object, **__: object) -> None:
        raise DatabaseUnreachable("it is away")

    for point in ("upsert", "bulk_load"):
        with monkeypatch.context() as patched:
            patched.setattr(harness.context.database, point, away)
            with pytest.raises(DatabaseUnreachable):
                layer.step()
        assert harness.check().offsets == {}
    committed = store.commit_micro_batch

    def unanswered(*arguments, **options):
        committed(*arguments, **options)
        raise DatabaseUnreachable("the connection broke")

    with monkeypatch.context() as patched:
        patched.setattr(store, "commit_micro_batch", unanswered)
        with pytest.raises(DatabaseUnreachable):
            layer.step()
    assert harness.check().offsets == harness.ends(), "it was committed all the same"
    assert layer.step() is False, "and is not read twice"
    harness.send(*SECOND)
    assert layer.step() is True
    assert harness.check().events == 10


def test_it_runs_until_it_is_told_to_stop(make):
    harness, _, layer = make()
    stop = threading.Event()
    thread = threading.Thread(target=layer.run, args=(stop,))
    thread.start()
    try:
        for events in (FIRST, SECOND, FIRST):
            harness.send(*events)
            until(lambda: harness.check().offsets == harness.ends(), "everything is seen")
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def test_partitions_that_are_added_are_read_from_their_start(make, kafka):
    clock = ManualClock()
    harness, _, layer = make(clock=clock)
    harness.send(*FIRST)
    assert layer.step() is True
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_partitions({harness.topic: 3})
    harness.sent[2] = [("home", 100)]
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:  # the other one knows of two
        producer.send(harness.topic, b'{"page": "home", "ms": 100}', partition=2).result()
    assert layer.step() is False, "not looked for yet"
    clock.advance(1_000)
    until(layer.step, "the partition is known")
    assert harness.check().offsets == harness.ends()


# --------------------------------------------------------------------------------------------------------- lost data


def test_what_retention_took_before_it_was_read_is_lost(make, kafka):
    harness, _, layer = make()
    harness.send(*FIRST)
    assert layer.step() is True
    layer.close()  # what it has fetched ahead would not be lost
    harness.send(*SECOND, *SECOND)
    before = harness.seen()
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(harness.topic, 0): 5}).all()
    with pytest.raises(DataLost, match="are gone"):
        layer.step()
    assert harness.seen() == before


def test_a_topic_that_is_gone_or_made_anew_is_lost(make, kafka):
    clock = ManualClock()
    harness, _, layer = make(clock=clock)
    harness.send(*FIRST)
    assert layer.step() is True
    before = harness.seen()
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.delete_topic(harness.topic)
        clock.advance(1_000)
        with pytest.raises((UnknownTopic, DataLost)):
            layer.step()
        until(lambda: harness.topic not in admin.list_topics(), "the topic is gone")
        admin.create_topic(harness.topic, num_partitions=2)
    clock.advance(1_000)
    with pytest.raises(DataLost, match="created again"):
        layer.step()
    assert harness.seen() == before


def test_a_log_that_ends_too_early_is_lost_if_it_stays_so(make, monkeypatch):
    clock = ManualClock()
    harness, _, layer = make(clock=clock)
    harness.send(*FIRST)
    assert layer.step() is True
    offsets = layer._log._log._log
    latest = offsets.latest
    monkeypatch.setattr(offsets, "latest", lambda places: dict.fromkeys(latest(places), 1))
    assert layer.step() is False
    clock.advance(speed_log._IS_LOST_AFTER_MS - 1)
    assert layer.step() is False, "a new leader may not know better yet"
    clock.advance(1)
    with pytest.raises(DataLost, match="ends at offset 1"):
        layer.step()
    harness.check()
