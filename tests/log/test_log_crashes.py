"""The process dies at each operation that changes the disk, in turn. All acknowledged records are there afterwards."""

import errno
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from log_harness import LogHarness, append, batch, headers

from headrace.log.appending import checked_batch
from headrace.log.config import LogConfig
from headrace.log.early_write import begin_early_write
from headrace.protocol.errors import OutOfOrderSequence, StorageError
from headrace.testing.faulty_disk import Crash, FaultyDisk

SIZE = len(batch(1))
CONFIG = LogConfig(segment_bytes=3 * SIZE, index_interval_bytes=SIZE, file_delete_delay_ms=0)


def fill(harness, acked, count=10):
    log = harness.log()
    for _ in range(count):
        number = log.next_offset
        append(log, leader_epoch=number // 4, producer_id=5, producer_epoch=0, base_sequence=number)
        acked.append(number)
    return log


def rolls(harness, acked):
    fill(harness, acked)


def retention(harness, acked):
    log = fill(harness, acked)
    log.config = LogConfig(segment_bytes=3 * SIZE, retention_bytes=4 * SIZE, file_delete_delay_ms=0)
    acked[:] = acked[6:]
    log.enforce_retention()
    harness.manager.remove_deleted()


def delete_records(harness, acked):
    log = fill(harness, acked)
    acked[:] = acked[7:]
    log.advance_log_start(7)
    harness.manager.checkpoint()


def stop(harness, acked):
    fill(harness, acked)
    harness.manager.close()


def snapshots_and_checkpoints(harness, acked):
    log = fill(harness, acked, 4)
    log.take_snapshot()
    log.flush()
    harness.manager.checkpoint()
    fill(harness, acked, 4)
    harness.manager.checkpoint()


def delete_topic(harness, acked):
    fill(harness, acked)
    acked.clear()
    harness.manager.delete("t", 0)
    harness.manager.remove_deleted()


def early_writes(harness, acked):
    """Each batch is written behind the log's end first. Every second batch is refused when it is appended."""
    log = harness.log()
    for number in (0, 9, 1, 9, 2, 9, 3, 9, 4):
        one = batch(producer_id=5, producer_epoch=0, base_sequence=number)
        early = begin_early_write(log, one)
        early.run(partial(checked_batch, one, log.config, harness.clock.wall_ms()))
        try:
            log.append(one, leader_epoch=0, checked=early.checked)
            acked.append(number)
        except OutOfOrderSequence:
            early.give_up()


def run(folder, work, crash_at):
    """Returns whether the work was done before the crash, the harness of the folder, and what was acknowledged."""
    disk = FaultyDisk()
    harness, acked = LogHarness(folder, config=CONFIG, disk=disk), []
    harness.open()
    disk.crash_at(crash_at)
    try:
        work(harness, acked)
    except Crash:
        return False, harness, acked
    finally:
        harness.manager.abandon()
    return True, harness, acked


@pytest.mark.parametrize(
    "work", [rolls, retention, delete_records, stop, snapshots_and_checkpoints, delete_topic, early_writes]
)
def test_a_crash_at_every_step(tmp_path, work):
    for crash_at in range(1, 400):
        folder = tmp_path / str(crash_at)
        done, _, acked = run(folder, work, crash_at)
        harness = LogHarness(folder, config=CONFIG, disk=FaultyDisk())
        harness.open()
        log = harness.manager.get("t", 0)
        if log is not None:
            found = [header.base_offset for header in headers(log)]
            assert found == list(range(log.log_start_offset, log.next_offset))
            assert set(acked) <= set(found), crash_at
            if log.next_offset and log.producers.active():
                assert log.producers.active()[0].last_sequence == log.next_offset - 1
            append(log, leader_epoch=90)
            assert not [name for name in os.listdir(log.folder) if name.endswith((".tmp", ".deleted", ".swap"))]
        else:
            assert not acked
        harness.stop()
        shutil.rmtree(folder)
        if done:
            return
    pytest.fail("the work never ended")


@pytest.mark.parametrize("partial_bytes", [0, 1, 16, 60, SIZE - 1])
def test_a_full_disk_leaves_no_part_of_a_batch_and_takes_the_dir_offline(tmp_path, partial_bytes):
    disk = FaultyDisk()
    harness = LogHarness(tmp_path / "data", config=CONFIG, disk=disk)
    log = harness.fresh()
    append(log)
    disk.fail("write", ".log", error_number=errno.ENOSPC, partial_bytes=partial_bytes)
    with pytest.raises(StorageError):
        append(log)
    assert harness.went_offline == [tmp_path / "data"]
    assert os.path.getsize(log.active.path()) == SIZE
    disk.heal()
    for use in (lambda: append(log), lambda: log.read(0, 1, until_offset=1), log.flush, log.enforce_retention):
        with pytest.raises(StorageError):
            use()
    log = harness.reborn()
    assert log.next_offset == 1
    append(log)
    harness.kill()


def test_a_disk_that_cannot_even_cut_is_repaired_at_the_next_start(tmp_path):
    disk = FaultyDisk()
    harness = LogHarness(tmp_path / "data", disk=disk)
    log = harness.fresh()
    append(log)
    disk.fail("write", ".log", partial_bytes=70)
    disk.fail("truncate", ".log")
    with pytest.raises(StorageError):
        append(log)
    disk.heal()
    log = harness.reborn()
    assert (log.next_offset, log.size_bytes) == (1, SIZE)
    harness.kill()


def test_one_dir_of_two_fails_and_the_other_goes_on(tmp_path):
    disk = FaultyDisk()
    harness = LogHarness(tmp_path / "a", tmp_path / "b", disk=disk)
    manager = harness.open()
    logs = [manager.create("t", number, None) for number in range(4)]
    assert sorted(Path(log.log_dir.path).name for log in logs) == ["a", "a", "b", "b"]
    disk.fail("fsync", str(tmp_path / "a"))
    bad, good = ([log for log in logs if Path(log.log_dir.path).name == name] for name in "ab")
    append(bad[0])
    with pytest.raises(StorageError):
        bad[0].flush()
    with pytest.raises(StorageError):
        append(bad[1])
    assert append(good[0]).base_offset == 0
    assert list(manager.offline) == [tmp_path / "a"]
    assert manager.online == [tmp_path / "b"]
    assert Path(manager.create("u", 0, None).log_dir.path).name == "b"
    manager.checkpoint()
    manager.enforce_retention()
    manager.close()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    disk.heal()
    manager = harness.open()
    assert harness.report.recovered == 2
    assert manager.get("t", good[0].partition).next_offset == 1
    harness.kill()


def test_a_dir_that_fails_while_loading_is_left_out(tmp_path):
    disk = FaultyDisk()
    disk.fail("list", str(tmp_path / "a"))
    harness = LogHarness(tmp_path / "a", tmp_path / "b", disk=disk)
    harness.open()
    assert harness.report.offline == [tmp_path / "a"]
    harness.kill()


def test_no_descriptor_left_fails_one_append_and_not_the_dir(tmp_path):
    disk = FaultyDisk()
    harness = LogHarness(tmp_path / "data", disk=disk)
    log = harness.fresh()
    append(log)
    log.active.close_files()
    disk.fail("open", ".log", error_number=errno.EMFILE, lasting=False)
    with pytest.raises(StorageError, match="too many open files"):
        append(log)
    assert harness.went_offline == []
    assert append(log).base_offset == 1
    harness.kill()


def test_a_flush_that_began_before_its_segments_were_dropped_makes_no_files(tmp_path):
    disk = FaultyDisk()
    harness = LogHarness(tmp_path / "data", config=CONFIG, disk=disk)
    log = fill_three_segments(harness)
    began_with = list(log.segments)
    log.config = LogConfig(segment_bytes=3 * SIZE, retention_bytes=0)
    log.enforce_retention()
    for segment in began_with:
        log._fsync(segment, is_finished=True)
    assert {name for name in os.listdir(log.folder) if name.endswith(".log")} == {f"{log.next_offset:020d}.log"}
    assert harness.went_offline == []
    harness.kill()


def fill_three_segments(harness):
    harness.open()
    return fill(harness, [], 9)
