"""The archive with Spark and a broker: it has each record exactly once, also after crashes."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from lambda_harness import quick as quick

from headrace import Admin, Producer, TopicPartition
from headrace.client.errors import UnknownTopic
from headrace.pipeline.archive.archive import Archive
from headrace.pipeline.archive.files import ArchiveFiles
from headrace.pipeline.progress.data_loss import DataLost

pytestmark = pytest.mark.timeout(300)
MIDNIGHT_MS = int(datetime(2026, 11, 16, tzinfo=UTC).timestamp() * 1000)
_numbers = count()


class Power(BaseException):
    """Goes off: nothing catches this."""


@pytest.fixture(scope="module")
def admin(kafka):
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(scope="module")
def producer(kafka):
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def topic(admin) -> str:
    name = f"clicks-{next(_numbers)}"
    admin.create_topic(name, num_partitions=2)
    return name


@pytest.fixture
def archive(spark, kafka, tmp_path) -> Archive:
    return open_archive(spark, kafka, tmp_path)


def open_archive(spark, kafka, tmp_path: Path) -> Archive:
    return Archive(spark, str(tmp_path / "archive"), {"kafka.bootstrap.servers": kafka.bootstrap_servers})


def produce(producer: Producer, topic: str, record_count: int, *, start: int = 0) -> None:
    """One record per minute, from one minute before midnight on, in turn to both partitions."""
    for number in range(start, start + record_count):
        at_ms = MIDNIGHT_MS - 60_000 + number * 60_000
        headers = {"number": b"%d" % number} if number % 3 else {}
        key = b"k%d" % (number % 5) if number % 7 else None
        value = b"v%d" % number if number % 5 else None
        producer.send(topic, value, key=key, partition=number % 2, timestamp_ms=at_ms, headers=headers)
    producer.flush()


def places(frame) -> Counter[tuple[int, int]]:
    return Counter((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def expected(*ranges: tuple[int, int, int]) -> Counter[tuple[int, int]]:
    return Counter((partition, offset) for partition, start, end in ranges for offset in range(start, end))


def parquet_files(tmp_path: Path) -> set[Path]:
    return set((tmp_path / "archive").rglob("*.parquet"))


def test_the_archive_has_the_records_as_the_log_has_them(spark, kafka, archive, producer, topic, tmp_path):
    produce(producer, topic, 40)
    assert archive.append(topic, {0: 20, 1: 20}) == 40
    log = spark.read.format("headrace").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    log = log.option("subscribe", topic).option("includeHeaders", "true").load().orderBy("partition", "offset")
    kept = archive.read(topic, None, {0: 20, 1: 20}).orderBy("partition", "offset")
    assert kept.schema == log.schema
    assert kept.collect() == log.collect()
    days = {path.parent.name for path in parquet_files(tmp_path)}
    assert days == {"day=2026-11-15", "day=2026-11-16"}
    assert {path.parents[1].name for path in parquet_files(tmp_path)} == {f"topic={topic}"}
    direct = spark.read.parquet(str(tmp_path / "archive"))
    assert direct.where("day = '2026-11-15'").count() == 1
    assert direct.count() == 40


def test_appends_go_on_where_the_last_one_ended_and_others_see_them(spark, kafka, archive, producer, topic, tmp_path):
    produce(producer, topic, 20)
    assert archive.append(topic, {0: 6, 1: 4}) == 10
    assert archive.append(topic, {0: 5, 1: 4}) == 0
    other = open_archive(spark, kafka, tmp_path)
    assert other.ends(topic) == {0: 6, 1: 4}
    assert other.append(topic, {0: 10, 1: 2}) == 4
    assert archive.ends(topic) == {0: 10, 1: 4}
    assert archive.starts(topic) == {0: 0, 1: 0}
    assert places(archive.read(topic, None, {0: 10, 1: 4})) == expected((0, 0, 10), (1, 0, 4))
    assert places(archive.read(topic, {0: 3}, {0: 8, 1: 1})) == expected((0, 3, 8), (1, 0, 1))
    assert places(archive.read(topic, {0: 6, 1: 4}, {0: 10, 1: 4})) == expected((0, 6, 10))
    assert places(archive.read(topic, {0: 8}, {0: 8})) == Counter()
    with pytest.raises(DataLost, match="only up to offset 4"):
        archive.read(topic, None, {0: 10, 1: 5})


@pytest.mark.parametrize("point", ["in the job", "before the move", "before the manifest", "after the manifest"])
def test_a_crash_leaves_each_record_once(spark, kafka, archive, producer, topic, tmp_path, monkeypatch, point):
    produce(producer, topic, 20)
    archive.append(topic, {0: 2, 1: 2})
    crash_at(monkeypatch, point)
    with pytest.raises(Power):
        archive.append(topic, {0: 10, 1: 10})
    monkeypatch.undo()
    again = open_archive(spark, kafka, tmp_path)
    is_done = point == "after the manifest"
    assert again.ends(topic) == ({0: 10, 1: 10} if is_done else {0: 2, 1: 2})
    assert again.append(topic, {0: 10, 1: 10}) == (0 if is_done else 16)
    assert places(again.read(topic, None, {0: 10, 1: 10})) == expected((0, 0, 10), (1, 0, 10))
    produce(producer, topic, 2, start=20)
    again.append(topic, {0: 11, 1: 11})
    listed = {tmp_path / "archive" / file.path for one in again.history(topic).manifests for file in one.files}
    assert parquet_files(tmp_path) == listed
    assert spark.read.parquet(str(tmp_path / "archive")).count() == 22


def crash_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def crash(*_: object, **__: object) -> None:
        raise Power(point)

    def create_and_crash(files: ArchiveFiles, name: str, text: str) -> bool:
        assert create(files, name, text)
        raise Power(point)

    create = ArchiveFiles.create
    monkeypatch.setattr(ArchiveFiles, "delete", lambda *_: None)  # who is dead does not tidy up
    match point:
        case "in the job":
            monkeypatch.setattr(Archive, "inspect", crash)
        case "before the move":
            monkeypatch.setattr(ArchiveFiles, "move", crash)
        case "before the manifest":
            monkeypatch.setattr(ArchiveFiles, "create", crash)
        case _:
            monkeypatch.setattr(ArchiveFiles, "create", create_and_crash)


def test_of_two_that_append_at_once_one_begins_again(spark, kafka, archive, producer, topic, tmp_path, monkeypatch):
    produce(producer, topic, 20)
    other = open_archive(spark, kafka, tmp_path)
    both, create, tries = threading.Barrier(2), ArchiveFiles.create, count()

    def create_together(files: ArchiveFiles, name: str, text: str) -> bool:
        if next(tries) < 2:
            both.wait(60)
        return create(files, name, text)

    monkeypatch.setattr(ArchiveFiles, "create", create_together)
    added: dict[str, int] = {}
    threads = [
        threading.Thread(target=lambda: added.update(mine=archive.append(topic, {0: 4, 1: 10}))),
        threading.Thread(target=lambda: added.update(theirs=other.append(topic, {0: 10, 1: 4}))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(added.values()) == 20
    assert archive.ends(topic) == other.ends(topic) == {0: 10, 1: 10}
    assert places(archive.read(topic, None, {0: 10, 1: 10})) == expected((0, 0, 10), (1, 0, 10))
    assert sum(1 for _ in parquet_files(tmp_path)) == sum(len(one.files) for one in archive.history(topic).manifests)


def test_what_the_log_forgot_after_it_was_archived_is_still_there(archive, admin, producer, topic):
    produce(producer, topic, 20)
    archive.append(topic, {0: 10, 1: 10})
    admin.delete_records({TopicPartition(topic, 0): 9, TopicPartition(topic, 1): 10}).all()
    produce(producer, topic, 4, start=20)
    assert archive.append(topic, {0: 12, 1: 12}) == 4
    assert places(archive.read(topic, None, {0: 12, 1: 12})) == expected((0, 0, 12), (1, 0, 12))


def test_what_the_log_forgot_before_it_was_archived_is_an_error(archive, admin, producer, topic):
    produce(producer, topic, 20)
    archive.append(topic, {0: 3, 1: 3})
    admin.delete_records({TopicPartition(topic, 0): 5}).all()
    lost = rf"offsets 3 to 4 of {topic}-0 were deleted from the log before .* to start over, drop the views"
    with pytest.raises(DataLost, match=lost):
        archive.append(topic, {0: 10, 1: 10})
    assert archive.append(topic, {0: 3, 1: 10}) == 7


def test_an_archive_begins_where_the_log_does(archive, admin, producer, topic):
    produce(producer, topic, 20)
    admin.delete_records({TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 10}).all()
    assert archive.append(topic, {0: 10, 1: 10}) == 6
    assert (archive.starts(topic), archive.ends(topic)) == ({0: 4, 1: 10}, {0: 10, 1: 10})
    produce(producer, topic, 2, start=20)
    assert archive.append(topic, {0: 11, 1: 11}) == 2
    assert places(archive.read(topic, None, {0: 11, 1: 11})) == expected((0, 4, 11), (1, 10, 11))
    with pytest.raises(DataLost, match="only from offset 4 on"):
        archive.read(topic, {0: 0}, {0: 11})


def test_a_topic_that_was_made_anew_is_told_by_its_id(archive, admin, producer, topic):
    produce(producer, topic, 4)
    archive.append(topic, {0: 2, 1: 2})
    admin.delete_topic(topic)
    with pytest.raises(UnknownTopic):
        archive.check(topic)
    admin.create_topic(topic, num_partitions=1)
    with pytest.raises(DataLost, match="was deleted and created again: its id is"):
        archive.check(topic)
    admin.create_partitions({topic: 2})
    produce(producer, topic, 20)
    for act in (lambda: archive.check(topic), lambda: archive.append(topic, {0: 10, 1: 10})):
        with pytest.raises(DataLost, match="was deleted and created again: its id is"):
            act()
    assert places(archive.read(topic, None, {0: 2, 1: 2})) == expected((0, 0, 2), (1, 0, 2))


def test_one_that_was_moved_away_begins_anew(archive, admin, producer, topic, tmp_path):
    produce(producer, topic, 4)
    archive.append(topic, {0: 1, 1: 1})
    archive.append(topic, {0: 2, 1: 2})
    admin.delete_topic(topic)
    admin.create_topic(topic, num_partitions=2)
    for name in (f"_headrace/{topic}", f"topic={topic}"):
        (tmp_path / "archive" / name).rename(tmp_path / name.replace("/", "-"))
    archive.check(topic)
    produce(producer, topic, 6)
    assert archive.append(topic, {0: 3, 1: 3}) == 6
    assert places(archive.read(topic, None, {0: 3, 1: 3})) == expected((0, 0, 3), (1, 0, 3))


def test_a_log_that_became_shorter_is_told_of(archive, producer, topic, monkeypatch):
    produce(producer, topic, 4)
    archive.append(topic, {0: 2, 1: 2})
    monkeypatch.setattr("headrace.pipeline.archive.archive._IS_LOST_AFTER_S", 0.1)
    monkeypatch.setattr("headrace.pipeline.archive.archive._POLL_S", 0.05)
    with pytest.raises(DataLost, match=f"{topic}-1 ends before offset 3, up to which it was read"):
        archive.append(topic, {0: 2, 1: 3})
    with pytest.raises(DataLost, match=f"{topic}-7 no longer exists, but was read before"):
        archive.append(topic, {7: 1})


def test_an_empty_topic_is_known_from_its_first_append_on(archive, admin, producer, topic):
    assert archive.append(topic, {0: 0, 1: 0}) == 0
    archive.check(topic)
    assert archive.ends(topic) == {0: 0, 1: 0}
    assert archive.read(topic, None, {0: 0, 1: 0}).count() == 0
    admin.create_partitions({topic: 3})
    produce(producer, topic, 2)
    producer.send_and_wait(topic, b"new", partition=2)
    assert archive.append(topic, {0: 1, 1: 1, 2: 1}) == 3
    assert places(archive.read(topic, None, {0: 1, 1: 1, 2: 1})) == expected((0, 0, 1), (1, 0, 1), (2, 0, 1))


def test_a_damaged_archive_is_told_of(spark, kafka, archive, producer, topic, tmp_path):
    produce(producer, topic, 4)
    archive.append(topic, {0: 1, 1: 1})
    archive.append(topic, {0: 2, 1: 2})
    folder = tmp_path / "archive" / "_headrace" / topic
    (folder / "0000000001.json").unlink()
    with pytest.raises(DataLost, match="one is missing or was renamed"):
        open_archive(spark, kafka, tmp_path).ends(topic)


def test_files_of_other_file_systems_are_made_whole_and_once(spark, tmp_path):
    """HDFS' way, tried on a local disk, which knows it too."""
    files = ArchiveFiles(spark, str(tmp_path / "a b"))
    files._local = None
    assert files.create("x/1.json", json.dumps({"a": "ü"}))
    assert not files.create("x/1.json", "other")
    assert json.loads(files.read("x/1.json")) == {"a": "ü"}
    assert files.listing("x") == ["1.json"]
    files.move("x/1.json", "y/z/2.json")
    assert files.below("y") == ["y/z/2.json"]
    assert files.listing("x") == files.below("nothing") == []
    files._scheme = "s3a"
    assert files.create("x/1.json", "s3")
    assert not files.create("x/1.json", "other")
    assert files.read("x/1.json") == "s3"
    shutil.rmtree(tmp_path / "a b")
