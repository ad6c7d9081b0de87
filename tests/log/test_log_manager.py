"""The log manager: start and stop, the owner of a dir, and the creation and deletion of logs."""

import os
import time
from pathlib import Path
from uuid import UUID

import pytest
from log_harness import LogHarness, append, headers

from headrace.log.config import LogConfig
from headrace.log.log_manager import MAX_PREFERRED_DIRS, LogDirError
from headrace.testing.faulty_disk import FaultyDisk


def test_a_clean_stop_is_noticed_once(harness):
    harness.open()
    assert harness.report.recovered == 0
    append(harness.log(), 3)
    harness.stop()
    harness.open()
    assert (harness.report.logs, harness.report.recovered) == (1, 0)
    assert harness.log().next_offset == 3
    harness.kill()
    harness.open()
    assert harness.report.recovered == 1


def test_after_a_clean_stop_nothing_of_a_log_is_opened_before_its_first_use(tmp_path):
    class Watching(FaultyDisk):
        opens = 0

        def open(self, path, *flags):
            self.opens += "/t-" in path
            return super().open(path, *flags)

    disk = Watching()
    harness = LogHarness(tmp_path, disk=disk)
    harness.open()
    for partition in range(3):
        append(harness.log("t", partition), 2)
    harness.stop()
    disk.opens = 0
    harness.open()
    logs = list(harness.manager.all())
    assert [log.next_offset for log in logs] == [2, 2, 2]
    harness.manager.checkpoint()
    harness.manager.flush_due()
    assert disk.opens == 0
    harness.kill()


def test_the_high_watermark_comes_back(harness):
    log = harness.fresh()
    append(log, 3)
    log.high_watermark = 2
    assert harness.restarted().high_watermark == 2


def test_a_checkpoint_is_written_while_the_event_loop_truncates_a_log(harness):
    """The checkpoint runs on another thread, and truncating a log fully leaves it without segments for a moment."""
    log = harness.fresh()
    append(log, 3)
    segments, log.segments[:] = list(log.segments), []
    harness.manager.checkpoint()
    log.segments[:] = segments
    assert harness.manager.offline == {}
    assert harness.reborn().next_offset == 3


def test_a_dir_in_use_is_refused(harness, tmp_path):
    harness.open()
    other = LogHarness(tmp_path / "data")
    with pytest.raises(LogDirError, match="in use by another process"):
        other.open()
    harness.stop()
    other.open()
    other.kill()


@pytest.mark.parametrize(
    ("line", "sentence"), [("broker.id=7", "belongs to broker 7"), ("cluster.id=other", "belongs to cluster other")]
)
def test_a_dir_of_somebody_else_is_refused(harness, tmp_path, line, sentence):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(f"#comment\nversion=1\n{line}\n")
    with pytest.raises(LogDirError, match=sentence):
        harness.open()


def test_meta_properties_of_a_new_dir(harness, tmp_path):
    harness.open()
    fields = dict(line.split("=") for line in (tmp_path / "data" / "meta.properties").read_text().splitlines())
    assert fields.keys() == {"version", "broker.id", "node.id", "cluster.id", "directory.id"}
    assert (fields["version"], fields["broker.id"], fields["cluster.id"]) == ("1", "1", "cluster")
    harness.stop()
    harness.open()


def test_no_dir_that_works_is_an_error(tmp_path):
    disk = FaultyDisk()
    disk.fail("list")
    with pytest.raises(LogDirError, match="no log dir works"):
        LogHarness(tmp_path / "a", disk=disk).open()


def test_the_same_partition_in_two_dirs_is_refused(tmp_path):
    for name in "ab":
        (tmp_path / name / "t-0").mkdir(parents=True)
    with pytest.raises(LogDirError, match="t-0 is in"):
        LogHarness(tmp_path / "a", tmp_path / "b").open()


def test_a_log_is_created_in_its_preferred_dir_if_that_works(tmp_path):
    harness = LogHarness(tmp_path / "a", tmp_path / "b")
    manager = harness.open()
    first, second = manager.log_dirs
    for partition in range(3):
        manager.prefer_dir("t", partition, second)
    assert [manager.create("t", partition, None).log_dir for partition in (0, 1)] == [second, second]
    # A preference counts for one log, and not for a log that exists already.
    manager.delete("t", 0)
    assert manager.create("t", 0, None).log_dir is first
    manager.prefer_dir("t", 0, second)
    manager.delete("t", 0)
    assert manager.create("t", 0, None).log_dir is first
    second.take_offline(OSError(5, "broken"))
    assert manager.create("t", 2, None).log_dir is first
    harness.stop()


def test_preferred_dirs_do_not_fill_the_memory(harness):
    manager = harness.open()
    for number in range(20_000):
        manager.prefer_dir(f"nobody-makes-{number}", 0, manager.log_dirs[0])
    assert len(manager._preferred_dirs) == MAX_PREFERRED_DIRS
    harness.stop()


def test_topic_ids_and_odd_topic_names(harness):
    topic_id = UUID("da3b5f92-29c1-4cda-ad01-6d9cc166fae8")
    log = harness.open().create("a.b-c_1-2", 3, topic_id)
    written = (Path(log.folder) / "partition.metadata").read_text()
    assert written == "version: 0\ntopic_id: 2jtfkinBTNqtAW2cwWb66A", "as Kafka wrote it"
    harness.stop()
    harness.open()
    log = harness.manager.get("a.b-c_1-2", 3)
    assert log.topic_id == topic_id
    assert harness.log("other").topic_id is None


def test_a_deleted_log_is_gone_at_once_and_its_files_later(harness, tmp_path):
    harness.config = LogConfig(file_delete_delay_ms=1000)
    append(harness.fresh())
    harness.manager.delete("t", 0)
    assert harness.manager.get("t", 0) is None
    (doomed,) = [name for name in os.listdir(tmp_path / "data") if name.endswith("-delete")]
    assert doomed.startswith("t-0.")
    harness.manager.remove_deleted()
    assert (tmp_path / "data" / doomed).exists()
    assert harness.log().next_offset == 0
    harness.kill()
    harness.open()
    harness.clock.advance(1000)
    harness.manager.remove_deleted()
    assert not (tmp_path / "data" / doomed).exists()
    assert harness.manager.get("t", 0) is not None


def test_flush_is_due_by_time_and_after_a_roll(harness):
    harness.config = LogConfig(flush_ms=1000, segment_bytes=200)
    log = harness.fresh()
    append(log)
    assert harness.manager.flush_due() == []
    harness.clock.advance(1000)
    assert harness.manager.flush_due() == [log]
    log.flush()
    assert (harness.manager.flush_due(), log.recovery_point) == ([], 1)
    for _ in range(3):
        append(log)
    assert harness.manager.flush_due() == [log]


def test_many_idle_partitions_load_fast(harness):
    harness.open()
    for partition in range(500):
        log = harness.manager.create("t", partition, None)
        if partition % 10 == 0:
            append(log)
    harness.stop()
    began = time.perf_counter()
    harness.open()
    assert time.perf_counter() - began < 2
    assert harness.report.logs == 500
    assert len(headers(harness.log("t", 10))) == 1


def test_the_log_of_apaches_quorum_is_no_topic(harness, tmp_path):
    (tmp_path / "data" / "__cluster_metadata-0").mkdir(parents=True)
    harness.open()
    assert harness.report.logs == 0
    harness.stop()
    assert list((tmp_path / "data" / "__cluster_metadata-0").iterdir()) == []
