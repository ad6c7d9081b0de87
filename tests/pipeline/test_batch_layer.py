"""The batch layer, without a speed layer: what lands is the query over everything up to the cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from lambda_worlds import FIRST, SECOND, TOTAL, World
from lambda_worlds import quick as quick

from headrace import Admin, Consumer, TopicPartition
from headrace.pipeline.batch_layer import BatchStopped
from headrace.pipeline.decoding import decode_frame, good_rows
from headrace.pipeline.lambda_store import LambdaStore
from headrace.pipeline.log_offsets import DataLost
from headrace.pipeline.packed_rows import packed
from headrace.pipeline.serving.database import Database
from headrace.pipeline.view import build

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def world(spark, kafka, sqlite_url, tmp_path):
    database = Database(sqlite_url)
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made
    database.close()


@pytest.fixture
def either_world(spark, kafka, database, tmp_path):
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made


def micro_batch(world: World, store: LambdaStore) -> None:
    """What the speed layer does, the plain way."""
    progress = store.progress()
    assert progress is not None
    starts, ends = progress.offsets[world.topic], world.ends()[world.topic]
    events = [
        (at, offset, event)
        for at in ends
        for offset, event in enumerate(world.sent[at])
        if starts.get(at, 0) <= offset < ends[at]
    ]
    values = [(None, b"{" if e is None else b'{"page": "%s", "ms": %d}' % (e[0].encode(), e[1])) for *_, e in events]
    places = [(world.topic, at, offset) for at, offset, _ in events]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    raw = world.around.spark.createDataFrame([(*v, *p, None) for v, p in zip(values, places, strict=True)], schema)
    partials = store.algebra.collect(good_rows(decode_frame(world.definition.decode, raw)))
    bad = sum(event is None for *_, event in events)
    store.commit_micro_batch(world.ends(), partials, events=len(events), dead_letters=bad)


def dead_letter_count(world: World) -> int:
    with Admin(bootstrap_servers=world.around.project.bootstrap) as admin:
        if world.definition.dead_letters not in admin.list_topics():
            return 0
    places = [TopicPartition(world.definition.dead_letters, 0)]
    with Consumer(bootstrap_servers=world.around.project.bootstrap) as consumer:
        return sum(consumer.end_offsets(*places).values())


def test_batches_follow_the_log_full_and_incremental(either_world):
    world = either_world
    world.send(*FIRST)
    store = world.store()
    layer = world.batch_layer(store)
    first = layer.run()
    world.serve()
    assert (first.batch, first.is_new, first.is_full, first.rows) == (1, True, True, 3)
    progress = world.check()
    assert progress.offsets == first.cut == world.ends()
    assert (progress.events, progress.dead_letters) == (5, 1)
    assert dead_letter_count(world) == 1
    again = layer.run()
    assert (again.batch, again.is_new) == (1, False)

    world.send(*SECOND)
    micro_batch(world, store)
    world.check()
    second = layer.run()
    assert (second.batch, second.is_full, second.rows, second.cut) == (2, False, 4, world.ends())
    assert store.spans() == []
    assert world.check().events == 10
    incremental = contents(store, 2)
    third = layer.run(full=True)
    assert (third.batch, third.is_full, third.rows) == (3, True, 4)
    assert contents(store, 3) == incremental
    assert world.check().dead_letters == 2
    assert dead_letter_count(world) == 1, "the speed layer sends those that it reads"
    assert world.seen()[0] == from_scratch(world)
    assert world.around.metrics.of(*world.who).batches == 3


@pytest.mark.parametrize(("step", "sent"), [("load_batch", 0), ("land_batch", 1)])
def test_a_batch_that_fails_and_is_done_again_sends_its_dead_letters_once(world, monkeypatch, step, sent):
    world.send(*FIRST)
    store = world.store()

    def fails(*_, **__):
        raise ValueError("math domain error")

    with monkeypatch.context() as patch:
        patch.setattr(store, step, fails)
        for _ in range(2):
            with pytest.raises(ValueError, match="math domain"):
                world.batch_layer(store).run()
        assert dead_letter_count(world) == sent
    world.send(*SECOND)  # the next try is cut further on
    world.batch_layer(store).run()
    assert dead_letter_count(world) == 2


def contents(store: LambdaStore, batch: int) -> list[dict[str, object]]:
    tables = store.partials_of_batch(batch)
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in store.algebra.key_columns]).to_pylist()


def from_scratch(world: World) -> list[tuple[object, ...]]:
    """By Spark alone, from the log."""
    spark = world.around.spark
    raw = spark.read.format("headrace").options(**world.around.log_options).option("subscribe", world.topic).load()
    return sorted(tuple(row) for row in build(spark, world.definition, raw).collect())


def test_a_micro_batch_that_was_committed_after_the_cut_stays(world):
    world.send(*FIRST)
    store = world.store()
    layer = world.batch_layer(store)
    layer.run()
    world.serve()
    world.send(*SECOND)
    micro_batch(world, store)
    load = store.load_batch

    def load_while_the_speed_layer_goes_on(*arguments):
        rows = load(*arguments)
        world.send(("home", 100), ("late", 1), ("late", 2))
        micro_batch(world, store)
        world.check()
        return rows

    store.load_batch = load_while_the_speed_layer_goes_on
    assert layer.run().batch == 2
    progress = world.check()
    assert progress.offsets == world.ends()
    assert [span.next_offsets for span in store.spans()] == [world.ends()]


def test_what_the_log_forgot_is_in_the_batch_all_the_same(world):
    world.send(*FIRST)
    store = world.store()
    layer = world.batch_layer(store)
    layer.run()
    world.serve()
    with Admin(bootstrap_servers=world.around.project.bootstrap) as admin:
        places = {TopicPartition(world.topic, at): end for at, end in world.ends()[world.topic].items()}
        admin.delete_records(places).all()
    world.send(*SECOND)
    micro_batch(world, store)
    assert layer.run(full=True).is_full
    assert world.check().offsets == world.ends()


def test_an_archive_that_is_not_what_it_was_is_told_of(world):
    world.send(*FIRST)
    store = world.store()
    world.batch_layer(store).run()
    world.serve()
    world.send(*SECOND)
    micro_batch(world, store)
    shutil.rmtree(world.around.project.archive_path)
    with pytest.raises(DataLost, match="but the last batch was made of it up to"):
        world.batch_layer(store).run(full=True)
    assert world.check().offsets == world.ends()


def test_the_archive_of_a_topic_that_was_made_anew_is_not_its_data(world):
    """Though it has all the offsets that are asked for."""
    world.send(*FIRST)
    world.around.archive.append(world.topic, world.ends()[world.topic])
    with Admin(bootstrap_servers=world.around.project.bootstrap) as admin:
        admin.delete_topic(world.topic)
        admin.create_topic(world.topic, num_partitions=len(world.sent))
    store = world.store()
    with pytest.raises(DataLost, match=r"was deleted and made anew: its id is .* to begin anew, drop the views of"):
        world.batch_layer(store).run()
    assert (store.batches(), store.progress()) == ([], None)


def test_a_batch_that_is_stopped_or_fails_changes_nothing(world):
    world.send(*FIRST)
    store = world.store()
    layer = world.batch_layer(store)
    with pytest.raises(BatchStopped):
        layer.run(is_stopped=lambda: True)
    assert (store.batches(), store.progress()) == ([], None)
    layer.run()
    world.serve()
    world.send(*SECOND)
    micro_batch(world, store)
    with pytest.raises(BatchStopped):
        layer.run(is_stopped=lambda: True)
    assert [each.batch for each in store.batches()] == [1]
    world.check()
    assert layer.run().batch == 2
    world.check()


def test_one_total_over_everything_and_over_nothing(spark, kafka, sqlite_url, tmp_path: Path):
    database = Database(sqlite_url)
    with World.make(spark, kafka.bootstrap_servers, database, tmp_path, query=TOTAL) as world:
        store = world.store()
        layer = world.batch_layer(store)
        assert layer.run().rows == 1
        world.serve()
        assert world.check().events == 0
        world.send(*FIRST)
        micro_batch(world, store)
        assert layer.run().rows == 1
        world.check()
        assert layer.run(full=True).rows == 1
        world.check()
    database.close()


def test_groups_over_nothing(world):
    assert world.batch_layer(world.store()).run().rows == 0
    world.serve()
    assert world.check().events == 0


def test_many_rows_come_some_at_a_time(spark, monkeypatch):
    from headrace.pipeline import packed_rows

    monkeypatch.setattr(packed_rows, "_CHUNKS_A_PARTITION", 1)
    frame = spark.range(0, 120_001, numPartitions=2).selectExpr("id", "string(id) AS text")
    with packed(frame) as tables:
        found = list(tables)
    assert len(found) > 2
    assert max(len(table) for table in found) < 70_000
    assert sorted(row for table in found for row in table.column("id").to_pylist()) == list(range(120_001))
    with packed(frame.where("id < 0"), pa.schema([("id", pa.int64()), ("text", pa.string())])) as tables:
        assert list(tables) == []
