"""Large batches that a thread writes behind the log's end before they are appended."""

import os
from threading import Event, Thread

import pytest
from log_harness import LogHarness, append, batch, headers

from headrace.log.appending import checked_batch
from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.early_write import begin_early_write
from headrace.protocol.errors import CorruptMessage, OutOfOrderSequence, StorageError
from headrace.testing.faulty_disk import FaultyDisk

LARGE = batch(2, value=b"large" * 1000)


def begin(log, large=LARGE):
    return begin_early_write(log, large)


def run(early, log):
    """What the thread does."""
    early.run(lambda: checked_batch(early.batch, log.config, log.log_dir.clock.wall_ms()))


def append_early(log, large=LARGE, *, leader_epoch=0):
    early = begin(log, large)
    run(early, log)
    try:
        return log.append(large, leader_epoch=leader_epoch, checked=early.checked)
    finally:
        early.give_up()


def offsets(log):
    return [(header.base_offset, header.record_count) for header in headers(log)]


def file_size(log):
    return os.path.getsize(log.active.path())


def test_a_batch_is_the_same_as_if_it_were_written_at_once(harness):
    log = harness.fresh()
    append(log)
    appended = append_early(log, leader_epoch=3)
    assert (appended.base_offset, appended.last_offset) == (1, 2)
    append(log, leader_epoch=3)
    other = harness.log("other")
    append(other), other.append(LARGE, leader_epoch=3), append(other, leader_epoch=3)
    assert log.early_write is None
    with open(log.active.path(), "rb") as early, open(other.active.path(), "rb") as at_once:
        assert early.read() == at_once.read()
    assert log.epochs.entries == other.epochs.entries


@pytest.mark.parametrize("reopen", ["restarted", "reborn"])
def test_an_appended_batch_is_there_after_a_stop_and_after_a_kill(harness, reopen):
    log = harness.fresh()
    append_early(log)
    assert offsets(getattr(harness, reopen)()) == [(0, 2)]


@pytest.mark.parametrize("reopen", ["restarted", "reborn"])
def test_a_batch_that_was_not_appended_is_not_there_after_a_stop_or_a_kill(harness, reopen):
    log = harness.fresh()
    append(log)
    size_bytes = file_size(log)
    run(begin(log), log)
    assert file_size(log) == size_bytes + len(LARGE)
    log = getattr(harness, reopen)()
    assert offsets(log) == [(0, 1)]
    assert file_size(log) == size_bytes
    assert append(log).base_offset == 1


def by_append(log):
    append(log)


def by_roll(log):
    log.roll()


def by_truncation(log):
    log.truncate_to(1)


def by_full_truncation(log):
    log.truncate_fully(1)


@pytest.mark.parametrize("change", [by_append, by_roll, by_truncation, by_full_truncation])
def test_whatever_else_changes_the_end_of_the_log_comes_first(harness, change):
    log = harness.fresh()
    append(log), append(log)
    early = begin(log)
    run(early, log)
    segment, size_bytes, woken = log.active, log.active.size_bytes, []
    early.call_at_end(lambda: woken.append("waiting"))
    change(log)
    assert woken == ["waiting"]
    assert log.early_write is None
    if change is by_roll:
        assert os.path.getsize(segment.path()) == size_bytes
    assert file_size(log) == log.active.size_bytes
    next_offset = log.next_offset
    assert log.append(LARGE, leader_epoch=0, checked=early.checked).base_offset == next_offset
    early.give_up()
    assert offsets(harness.reborn())[-1] == (next_offset, 2)


class GatedDisk(Disk):
    """Holds large writes until the test opens the gate."""

    __slots__ = ("gate", "reached")

    def __init__(self):
        self.reached, self.gate = Event(), Event()

    def write(self, fd, buffers, position, size_bytes):
        if size_bytes > len(LARGE) // 2:
            self.reached.set()
            assert self.gate.wait(60)
        super().write(fd, buffers, position, size_bytes)


def test_a_change_waits_for_the_thread_that_writes(tmp_path):
    disk = GatedDisk()
    harness = LogHarness(tmp_path, disk=disk)
    log = harness.fresh()
    thread = Thread(target=run, args=(begin(log), log))
    thread.start()
    assert disk.reached.wait(60)
    Thread(target=disk.gate.set).start()
    append(log)  # would be overwritten by the thread, if it did not wait
    thread.join()
    assert offsets(log) == [(0, 1)]
    assert file_size(log) == log.active.size_bytes
    assert offsets(harness.reborn()) == [(0, 1)]
    harness.kill()


def test_a_thread_that_comes_too_late_writes_nothing(harness):
    log = harness.fresh()
    early = begin(log)
    append(log)
    size_bytes = file_size(log)
    run(early, log)
    assert file_size(log) == size_bytes
    assert log.append(LARGE, leader_epoch=0, checked=early.checked).base_offset == 1


def test_a_batch_that_does_not_fit_begins_a_segment(harness):
    harness.config = LogConfig(segment_bytes=len(LARGE) + 10)
    log = harness.fresh()
    append(log)
    append_early(log)
    append_early(log)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 3]
    assert offsets(harness.reborn()) == [(0, 1), (1, 2), (3, 2)]


def test_a_batch_that_is_not_valid_is_not_written(harness):
    log = harness.fresh()
    damaged = LARGE[:-1] + b"!"
    early = begin(log, damaged)
    with pytest.raises(CorruptMessage):
        run(early, log)
    early.give_up()
    assert file_size(log) == 0
    assert append(log).base_offset == 0


def test_a_batch_that_is_refused_when_it_is_appended_is_cut_off(harness):
    log = harness.fresh()
    producer = {"producer_id": 5, "producer_epoch": 0, "value": b"large" * 1000}
    first = batch(2, base_sequence=0, **producer)
    assert append_early(log, first).base_offset == 0
    size_bytes = file_size(log)
    assert append_early(log, first).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        append_early(log, batch(2, base_sequence=7, **producer))
    assert file_size(log) == size_bytes
    assert append_early(log, batch(2, base_sequence=2, **producer)).base_offset == 2
    assert offsets(harness.reborn()) == [(0, 2), (2, 2)]


@pytest.mark.parametrize("which_write", ["of the thread", "of the first bytes"])
def test_an_error_of_the_disk_reaches_the_append_and_takes_the_dir_offline(tmp_path, which_write):
    disk = FaultyDisk()
    harness = LogHarness(tmp_path, disk=disk)
    log = harness.fresh()
    append(log)
    early = begin(log)
    if which_write == "of the thread":
        disk.fail("write", ".log", lasting=False, partial_bytes=100)
    run(early, log)
    if which_write == "of the first bytes":
        disk.fail("write", ".log", lasting=False)
    with pytest.raises(StorageError):
        log.append(LARGE, leader_epoch=0, checked=early.checked)
    early.give_up()
    assert harness.went_offline == [tmp_path]
    assert log.early_write is None
    assert log.next_offset == 1
    with pytest.raises(StorageError):
        begin(log)
    disk.heal()
    assert offsets(harness.reborn()) == [(0, 1)]
    harness.kill()


def test_settings_that_change_meanwhile_do_not_change_what_was_written(harness):
    harness.config = LogConfig(compression_type="zstd")
    log = harness.fresh()
    early = begin(log)
    run(early, log)
    assert len(early.checked) < len(LARGE)
    log.config = LogConfig()
    assert log.append(LARGE, leader_epoch=0, checked=early.checked).last_offset == 1
    assert file_size(log) == log.active.size_bytes == len(early.checked)
    assert offsets(harness.reborn()) == [(0, 2)]
