"""Compaction of the archive with Spark and a broker: every reader gets each record once, also after crashes."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lambda_harness import PARTITIONS, LambdaHarness, until
from lambda_harness import quick as quick
from test_archive import MIDNIGHT_MS, Power, admin, expected, parquet_files, places, produce, producer, topic  # noqa: F401

from headrace.pipeline.archive import compaction
from headrace.pipeline.archive.archive import Archive
from headrace.pipeline.archive.compaction import GRACE_MS, Compactor
from headrace.pipeline.archive.files import ArchiveFiles
from headrace.pipeline.serving.database import Database

pytestmark = pytest.mark.timeout(900)
ALL = {0: 10, 1: 10}


class Clock:
    now_ms = 1_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(spark, kafka, tmp_path, clock, monkeypatch):
    """Opens the archive as another process does. Nothing is compacted in the background."""
    monkeypatch.setattr(compaction, "_FILES", 3)
    monkeypatch.setattr(Compactor, "wake", lambda *_: None)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return lambda: Archive(spark, str(tmp_path / "archive"), options, now_ms=lambda: clock.now_ms)


@pytest.fixture
def archive(opened, producer, topic) -> Archive:  # noqa: F811
    """Twenty records in five appends; nearly all are of one day."""
    made = opened()
    produce(producer, topic, 20)
    for end in (2, 4, 6, 8, 10):
        assert made.append(topic, {0: end, 1: end}) == 4
    return made


def listed(archive: Archive, topic: str, tmp_path: Path) -> set[Path]:  # noqa: F811
    return {tmp_path / "archive" / file.path for file in archive.history(topic).live_files}


def test_many_files_become_few_and_nobody_notices(archive, opened, topic, tmp_path, clock, spark):  # noqa: F811
    whole = archive.read(topic, None, ALL)  # a reader that has listed the files, and reads them later
    before = parquet_files(tmp_path)
    schema, rows = whole.schema, sorted(whole.collect(), key=lambda row: (row.partition, row.offset))
    replaced = archive.compact(topic)
    assert replaced >= 5
    assert len(listed(archive, topic, tmp_path)) == len(before) - replaced + 1
    assert sorted(whole.collect(), key=lambda row: (row.partition, row.offset)) == rows
    for each in (archive, opened()):
        again = each.read(topic, None, ALL)
        assert again.schema == schema
        assert sorted(again.collect(), key=lambda row: (row.partition, row.offset)) == rows
        assert places(each.read(topic, {0: 3, 1: 5}, {0: 9, 1: 6})) == expected((0, 3, 9), (1, 5, 6))
        assert each.ends(topic) == ALL
    assert archive.compact(topic) == 0

    clock.now_ms += GRACE_MS - 1
    archive.compact(topic)
    assert before <= parquet_files(tmp_path), "somebody may still read them"
    clock.now_ms += 1
    archive.compact(topic)
    assert parquet_files(tmp_path) == listed(archive, topic, tmp_path)
    assert spark.read.parquet(str(tmp_path / "archive")).count() == 20


def test_appends_go_on_after_a_compaction(archive, producer, topic, opened, tmp_path):  # noqa: F811
    archive.compact(topic)
    other = opened()
    produce(producer, topic, 4, start=20)
    assert other.append(topic, {0: 12, 1: 12}) == 4
    assert places(archive.read(topic, {0: 9}, {0: 12, 1: 12})) == expected((0, 9, 12), (1, 0, 12))
    assert listed(archive, topic, tmp_path) <= parquet_files(tmp_path), "the first append sweeps orphans only"


@pytest.mark.parametrize("point", ["written", "moved", "published", "deleted"])
def test_a_crash_leaves_each_record_once(archive, opened, producer, topic, tmp_path, clock, monkeypatch, point):  # noqa: F811
    def goes_off(*_: object, **__: object) -> None:
        raise Power(point)

    create, delete = ArchiveFiles.create, ArchiveFiles.delete
    with monkeypatch.context() as crash:
        crash.setattr(ArchiveFiles, "delete", lambda *_: None)  # who is dead does not tidy up
        match point:
            case "written":
                crash.setattr(ArchiveFiles, "move", goes_off)
            case "moved":
                crash.setattr(ArchiveFiles, "create", goes_off)
            case "published":
                crash.setattr(ArchiveFiles, "create", lambda *given: create(*given) and goes_off())
            case "deleted":
                archive.compact(topic)
                clock.now_ms += GRACE_MS
                crash.setattr(ArchiveFiles, "delete", lambda *given: delete(*given) or goes_off())
        with pytest.raises(Power):
            archive.compact(topic)
    again = opened()
    assert places(again.read(topic, None, ALL)) == expected((0, 0, 10), (1, 0, 10))
    produce(producer, topic, 2, start=20)
    again.append(topic, {0: 11, 1: 11})  # deletes what nobody lists
    again.compact(topic)
    clock.now_ms += GRACE_MS
    again.compact(topic)
    assert places(again.read(topic, None, {0: 11, 1: 11})) == expected((0, 0, 11), (1, 0, 11))
    assert parquet_files(tmp_path) == listed(again, topic, tmp_path)


def test_of_two_that_compact_at_once_one_gives_up(archive, opened, topic, tmp_path, monkeypatch):  # noqa: F811
    other, publish = opened(), Archive.publish

    def later(mine: Archive, *given) -> bool:
        monkeypatch.setattr(Archive, "publish", publish)
        assert other.compact(topic) > 0
        return publish(mine, *given)

    monkeypatch.setattr(Archive, "publish", later)
    assert archive.compact(topic) == 0
    assert places(archive.read(topic, None, ALL)) == expected((0, 0, 10), (1, 0, 10))
    assert listed(archive, topic, tmp_path) == listed(other, topic, tmp_path)


def test_records_that_are_missing_in_the_new_files_are_noticed(archive, topic, monkeypatch):  # noqa: F811
    inspect = Archive.inspect

    def one_is_missing(*given):
        return {name: (rows - 1, ranges) for name, (rows, ranges) in inspect(*given).items()}

    monkeypatch.setattr(Archive, "inspect", one_is_missing)
    with pytest.raises(OSError, match="were written again, not"):
        archive.compact(topic)
    assert archive.history(topic).replaced == {}


def test_appends_compact_in_the_background(spark, kafka, producer, topic, tmp_path, monkeypatch, caplog):  # noqa: F811
    monkeypatch.setattr(compaction, "_FILES", 3)
    archive = Archive(spark, str(tmp_path / "archive"), {"kafka.bootstrap.servers": kafka.bootstrap_servers})
    produce(producer, topic, 20)
    with caplog.at_level(logging.INFO):
        for end in (2, 4, 6, 8, 10):
            archive.append(topic, {0: end, 1: end})
        until(lambda: bool(archive.history(topic).replaced), "small files are compacted")
        until(lambda: not [one for one in threading.enumerate() if one.name.startswith("compact ")], "the thread ends")
    assert "became" in caplog.text
    assert places(archive.read(topic, None, ALL)) == expected((0, 0, 10), (1, 0, 10))


# ------------------------------------------------------------------------------------ a batch that is reading meanwhile

#: The records of a batch do not fit into the buffers between Java and Python, so a task that waits does not read on.
_PADDING = "x" * 500_000
_APPENDS, _PER_APPEND = 4, 3


def waiting(reading: Path, go_on: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on. After the first ones it opens a FIFO to say that it reads, and waits for the other FIFO."""
    paths = str(reading), str(go_on)

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)
        with open(paths[0], "w"), open(paths[1]):  # each waits until the other side opens it, too
            pass
        yield from batches

    return pass_on


@pytest.fixture
def harness(spark, kafka, sqlite_url, tmp_path):
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    database = Database(sqlite_url)
    with LambdaHarness.make(spark, kafka.bootstrap_servers, database, tmp_path) as made:
        yield made
    database.close()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)


def test_a_batch_reads_on_while_its_files_are_replaced(harness, opened, tmp_path, monkeypatch):
    """One task reads all files, one after the other. They are replaced when it has read the first ones."""
    reading, go_on = tmp_path / "reading", tmp_path / "go_on"
    os.mkfifo(reading)
    os.mkfifo(go_on)
    store = harness.store()
    layer, archive = harness.batch_layer(store), opened()
    for number in range(_APPENDS * _PER_APPEND):
        event = (f"page-{number % 5}", number)
        value = json.dumps({"page": event[0], "ms": event[1], "padding": _PADDING}).encode()
        for at in range(PARTITIONS):
            harness.sent[at].append(event)
            harness.producer.send(harness.topic, value, partition=at, timestamp_ms=MIDNIGHT_MS)
        if (number + 1) % _PER_APPEND == 0:
            harness.producer.flush()
            archive.append(harness.topic, harness.ends()[harness.topic])
    files, replaced = len(archive.history(harness.topic).live_files), list[int]()

    def compact() -> None:
        with reading.open():
            replaced.append(archive.compact(harness.topic))
        with go_on.open("w"):
            pass

    compacting, read = threading.Thread(target=compact, daemon=True), Archive.read

    def read_slowly(mine: Archive, *given):
        monkeypatch.setattr(Archive, "read", read)
        compacting.start()
        frame = read(mine, *given)
        return frame.coalesce(1).mapInArrow(waiting(reading, go_on), frame.schema)

    monkeypatch.setattr(Archive, "read", read_slowly)
    result = layer.run()
    compacting.join()
    assert replaced == [files], "all files were replaced while the batch read them"
    harness.serve()
    assert harness.check().offsets == result.cut == harness.ends()
