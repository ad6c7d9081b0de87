"""The batch layer without a speed layer: the committed rows are the query over everything up to the cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from lambda_harness import FIRST, SECOND, TOTAL, LambdaHarness
from lambda_harness import quick as quick

from headrace import Admin, Consumer, TopicPartition
from headrace.pipeline.decoding.events import decode_frame, good_rows
from headrace.pipeline.lambda_.batch_layer import BatchStopped
from headrace.pipeline.lambda_.store import LambdaStore
from headrace.pipeline.progress.data_loss import DataLost
from headrace.pipeline.query.view_query import build
from headrace.pipeline.serving.database import Database
from headrace.pipeline.spark.packed_rows import packed

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made
    database.close()


@pytest.fixture
def either_harness(spark, kafka, database, tmp_path):
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made


def micro_batch(harness: LambdaHarness, store: LambdaStore) -> None:
    """Does the work of the speed layer in plain Python."""
    progress = store.progress()
    assert progress is not None
    starts, ends = progress.offsets[harness.topic], harness.ends()[harness.topic]
    events = [
        (at, offset, event)
        for at in ends
        for offset, event in enumerate(harness.sent[at])
        if starts.get(at, 0) <= offset < ends[at]
    ]
    values = [(None, b"{" if e is None else b'{"page": "%s", "ms": %d}' % (e[0].encode(), e[1])) for *_, e in events]
    places = [(harness.topic, at, offset) for at, offset, _ in events]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    raw = harness.context.spark.createDataFrame([(*v, *p, None) for v, p in zip(values, places, strict=True)], schema)
    partials = store.algebra.collect(good_rows(decode_frame(harness.definition.decode, raw)))
    bad = sum(event is None for *_, event in events)
    store.commit_micro_batch(harness.ends(), partials, events=len(events), dead_letters=bad)


def dead_letter_count(harness: LambdaHarness) -> int:
    with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        if harness.definition.dead_letters not in admin.list_topics():
            return 0
    places = [TopicPartition(harness.definition.dead_letters, 0)]
    with Consumer(bootstrap_servers=harness.context.project.bootstrap) as consumer:
        return sum(consumer.end_offsets(*places).values())


def test_batches_follow_the_log_full_and_incremental(either_harness):
    harness = either_harness
    harness.send(*FIRST)
    store = harness.store()
    layer = harness.batch_layer(store)
    first = layer.run()
    harness.serve()
    assert (first.batch, first.is_new, first.is_full, first.rows) == (1, True, True, 3)
    progress = harness.check()
    assert progress.offsets == first.cut == harness.ends()
    assert (progress.events, progress.dead_letters) == (5, 1)
    assert dead_letter_count(harness) == 1
    again = layer.run()
    assert (again.batch, again.is_new) == (1, False)

    harness.send(*SECOND)
    micro_batch(harness, store)
    harness.check()
    second = layer.run()
    assert (second.batch, second.is_full, second.rows, second.cut) == (2, False, 4, harness.ends())
    assert store.spans() == []
    assert harness.check().events == 10
    incremental = contents(store, 2)
    third = layer.run(full=True)
    assert (third.batch, third.is_full, third.rows) == (3, True, 4)
    assert contents(store, 3) == incremental
    assert harness.check().dead_letters == 2
    assert dead_letter_count(harness) == 1, "the speed layer sends those that it reads"
    assert harness.seen()[0] == from_scratch(harness)


@pytest.mark.parametrize(("step", "sent"), [("load", 0), ("commit_batch", 1)])
def test_a_batch_that_fails_and_is_done_again_sends_its_dead_letters_once(harness, monkeypatch, step, sent):
    harness.send(*FIRST)
    store = harness.store()

    def fails(*_, **__):
        raise ValueError("math domain error")

    with monkeypatch.context() as patch:
        patch.setattr(store.batch_tables if step == "load" else store, step, fails)
        for _ in range(2):
            with pytest.raises(ValueError, match="math domain"):
                harness.batch_layer(store).run()
        assert dead_letter_count(harness) == sent
    harness.send(*SECOND)  # the next try is cut further on
    harness.batch_layer(store).run()
    assert dead_letter_count(harness) == 2


def contents(store: LambdaStore, batch: int) -> list[dict[str, object]]:
    tables = store.batch_tables.partial_rows(batch)
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in store.algebra.key_columns]).to_pylist()


def from_scratch(harness: LambdaHarness) -> list[tuple[object, ...]]:
    """By Spark alone, from the log."""
    spark = harness.context.spark
    raw = spark.read.format("headrace").options(**harness.context.log_options).option("subscribe", harness.topic).load()
    return sorted(tuple(row) for row in build(spark, harness.definition, raw).collect())


def test_a_micro_batch_that_was_committed_after_the_cut_stays(harness):
    harness.send(*FIRST)
    store = harness.store()
    layer = harness.batch_layer(store)
    layer.run()
    harness.serve()
    harness.send(*SECOND)
    micro_batch(harness, store)
    load = store.batch_tables.load

    def load_while_the_speed_layer_goes_on(*arguments):
        rows = load(*arguments)
        harness.send(("home", 100), ("late", 1), ("late", 2))
        micro_batch(harness, store)
        harness.check()
        return rows

    store.batch_tables.load = load_while_the_speed_layer_goes_on
    assert layer.run().batch == 2
    progress = harness.check()
    assert progress.offsets == harness.ends()
    assert [span.next_offsets for span in store.spans()] == [harness.ends()]


def test_what_the_log_forgot_is_in_the_batch_all_the_same(harness):
    harness.send(*FIRST)
    store = harness.store()
    layer = harness.batch_layer(store)
    layer.run()
    harness.serve()
    with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        places = {TopicPartition(harness.topic, at): end for at, end in harness.ends()[harness.topic].items()}
        admin.delete_records(places).all()
    harness.send(*SECOND)
    micro_batch(harness, store)
    assert layer.run(full=True).is_full
    assert harness.check().offsets == harness.ends()


def test_an_archive_that_is_not_what_it_was_is_told_of(harness):
    harness.send(*FIRST)
    store = harness.store()
    harness.batch_layer(store).run()
    harness.serve()
    harness.send(*SECOND)
    micro_batch(harness, store)
    shutil.rmtree(harness.context.project.archive_path)
    with pytest.raises(DataLost, match="but the last batch used it up to"):
        harness.batch_layer(store).run(full=True)
    assert harness.check().offsets == harness.ends()


def test_the_archive_of_a_topic_that_was_made_anew_is_not_its_data(harness):
    """Though it has all the offsets that are asked for."""
    harness.send(*FIRST)
    harness.context.archive.append(harness.topic, harness.ends()[harness.topic])
    with Admin(bootstrap_servers=harness.context.project.bootstrap) as admin:
        admin.delete_topic(harness.topic)
        admin.create_topic(harness.topic, num_partitions=len(harness.sent))
    store = harness.store()
    with pytest.raises(
        DataLost, match=r"was deleted and created again: its id is .* to start over, " "drop the views that read"
    ):
        harness.batch_layer(store).run()
    assert (store.batches(), store.progress()) == ([], None)


def test_a_batch_that_is_stopped_or_fails_changes_nothing(harness):
    harness.send(*FIRST)
    store = harness.store()
    layer = harness.batch_layer(store)
    with pytest.raises(BatchStopped):
        layer.run(is_stopped=lambda: True)
    assert (store.batches(), store.progress()) == ([], None)
    layer.run()
    harness.serve()
    harness.send(*SECOND)
    micro_batch(harness, store)
    with pytest.raises(BatchStopped):
        layer.run(is_stopped=lambda: True)
    assert [each.batch for each in store.batches()] == [1]
    harness.check()
    assert layer.run().batch == 2
    harness.check()


def test_one_total_over_everything_and_over_nothing(spark, kafka, sqlite_url, tmp_path: Path):
    database = Database(sqlite_url)
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path, query=TOTAL) as harness:
        store = harness.store()
        layer = harness.batch_layer(store)
        assert layer.run().rows == 1
        harness.serve()
        assert harness.check().events == 0
        harness.send(*FIRST)
        micro_batch(harness, store)
        assert layer.run().rows == 1
        harness.check()
        assert layer.run(full=True).rows == 1
        harness.check()
    database.close()


def test_groups_over_nothing(harness):
    assert harness.batch_layer(harness.store()).run().rows == 0
    harness.serve()
    assert harness.check().events == 0


def test_many_rows_come_some_at_a_time(spark, monkeypatch):
    from headrace.pipeline.spark import packed_rows

    monkeypatch.setattr(packed_rows, "_CHUNKS_PER_PARTITION", 1)
    frame = spark.range(0, 120_001, numPartitions=2).selectExpr("id", "string(id) AS text")
    with packed(frame) as tables:
        found = list(tables)
    assert len(found) > 2
    assert max(len(table) for table in found) < 70_000
    assert sorted(row for table in found for row in table.column("id").to_pylist()) == list(range(120_001))
    with packed(frame.where("id < 0"), pa.schema([("id", pa.int64()), ("text", pa.string())])) as tables:
        assert list(tables) == []
