"""The cleaner: when a log is due, and what happens to a log during and after its cleaning."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from compacted_log_harness import COMPACTED, DAY_MS
from log_harness import locate_time

from headrace.log.compaction.cleaner import CLEANED_OFFSETS, CleanerConfig, CleaningStopped
from headrace.log.config import LogConfig
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import KafkaError
from headrace.protocol.record_body import Record
from headrace.testing.faulty_disk import FaultyDisk

# ------------------------------------------------------------------------------------------------------- when to clean


def test_a_log_is_due_above_its_dirty_ratio(harnesses):
    harness = harnesses(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    for number in range(100):
        harness.put((b"k%d" % number, b"v" * 50))
    harness.log.roll()
    assert harness.cleaner.next_to_clean([harness.log]) is harness.log
    harness.clean_closed()
    assert harness.cleaner.next_to_clean([harness.log]) is None
    for number in range(90):
        harness.put((b"k%d" % number, b"v" * 50))
    harness.log.roll()
    assert harness.cleaner.dirty_range(harness.log).ratio < 0.5
    assert harness.cleaner.next_to_clean([harness.log]) is None
    for number in range(30):
        harness.put((b"k%d" % number, b"v" * 50))
    harness.log.roll()
    assert harness.cleaner.next_to_clean([harness.log]) is harness.log


def test_the_dirtiest_log_is_next(harness):
    other = harness.manager.create("other", 0, None)
    harness.put((b"a", b"1"))
    harness.clean()
    harness.put((b"a", b"2"))
    other.append(build_batch([Record(0, harness.clock.wall_ms(), b"k", b"v")]), leader_epoch=0)
    other.high_watermark = 1
    other.roll()
    harness.log.roll()
    assert harness.cleaner.next_to_clean([harness.log, other]) is other
    assert harness.cleaner.plan(other) is not None
    assert harness.cleaner.next_to_clean([harness.log, other]) is harness.log, "the other is under way"


def test_a_log_that_is_not_compacted_is_never_due(harnesses):
    harness = harnesses(LogConfig())
    harness.put((b"a", b"1"))
    harness.log.roll()
    assert harness.cleaner.next_to_clean([harness.log]) is None


def test_young_segments_wait_for_the_min_lag(harnesses):
    harness = harnesses(replace(COMPACTED, min_compaction_lag_ms=10_000))
    harness.put((b"a", b"1"))
    harness.put((b"a", b"2"))
    harness.log.roll()
    harness.clock.advance(5_000)
    harness.put((b"a", b"3"))
    harness.log.roll()
    assert harness.clean_closed() is None
    harness.clock.advance(5_000)
    harness.clean_closed()
    assert harness.offsets() == [1, 2]
    harness.clock.advance(5_000)
    harness.clean_closed()
    assert harness.offsets() == [2]


def test_the_max_lag_makes_a_log_due(harnesses):
    harness = harnesses(replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000))
    harness.put((b"a", b"1"))
    harness.log.roll()
    harness.clock.advance(10_000)
    assert harness.cleaner.next_to_clean([harness.log]) is None
    harness.clock.advance(1)
    assert harness.cleaner.next_to_clean([harness.log]) is harness.log


def test_the_first_dirty_offset_survives_a_restart(harness):
    for number in range(10):
        harness.put((b"a", b"%d" % number))
    harness.clean()
    assert (harness.folder / CLEANED_OFFSETS).read_text() == "0\n1\nt 0 10\n"
    harness.reopen()
    assert harness.cleaner.dirty_range(harness.log).first_dirty_offset == 10
    harness.cleaner.forget(harness.log)
    assert (harness.folder / CLEANED_OFFSETS).read_text() == "0\n0\n"


def test_a_log_cut_below_what_was_cleaned_is_dirty_from_its_start(harness):
    for number in range(10):
        harness.put((b"k%d" % number, b""))
    harness.clean()
    harness.log.truncate_to(5)
    assert harness.cleaner.dirty_range(harness.log).first_dirty_offset == harness.log.log_start_offset


def test_a_small_map_cleans_in_several_rounds(harnesses):
    harness = harnesses(cleaner_config=CleanerConfig(dedupe_buffer_bytes=192 * 20, load_factor=0.5))
    for number in range(100):
        harness.put((b"k%d" % (number % 30), b"%d" % number))
    harness.log.roll()
    ends = []
    while (cleaned := harness.clean_closed()) is not None:
        assert cleaned.key_count == 10
        ends.append(cleaned.end_offset)
    assert ends == list(range(10, 101, 10))
    assert harness.view() == {b"k%d" % (at % 30): b"%d" % at for at in range(70, 100)}
    assert harness.offsets() == list(range(70, 100))


# ------------------------------------------------------------------------------------------------ meanwhile, and after


def test_segments_removed_while_they_were_cleaned_stay_removed(harness):
    for number in range(60):
        harness.put((b"k%d" % (number % 3), b"v" * 50))
    harness.log.roll()
    plan = harness.cleaner.plan(harness.log)
    cleaned = harness.cleaner.build(plan)
    harness.log.advance_log_start(45)
    harness.cleaner.commit(harness.log, cleaned)
    assert harness.log.log_start_offset == 45
    assert len(harness.view()) == 3
    assert not list(Path(harness.log.folder).glob("*.cleaned"))


def test_a_reader_of_an_old_segment_is_not_disturbed(harness):
    for number in range(10):
        harness.put((b"a", b"%d" % number))
    region = harness.log.read(0, 10_000, until_offset=10).region
    before = region.read()
    harness.clean()
    harness.clock.advance(DAY_MS)
    harness.manager.remove_deleted()
    assert region.read() == before


def test_appends_go_on_while_segments_are_built(harness):
    for number in range(20):
        harness.put((b"a", b"%d" % number))
    harness.log.roll()
    plan = harness.cleaner.plan(harness.log)
    harness.put((b"a", b"new"))
    cleaned = harness.cleaner.build(plan)
    harness.put((b"a", b"newer"))
    harness.cleaner.commit(harness.log, cleaned)
    assert harness.offsets() == [19, 20, 21]


def test_building_can_be_stopped(harness):
    harness.put((b"a", b"1"))
    harness.put((b"a", b"2"))
    harness.log.roll()
    plan = harness.cleaner.plan(harness.log)
    with pytest.raises(CleaningStopped) as stopped:
        harness.cleaner.build(plan, should_stop=lambda: True)
    harness.cleaner.abort(harness.log, stopped.value)
    assert not list(Path(harness.log.folder).glob("*.cleaned"))
    assert harness.clean_closed() is not None


def test_a_log_that_cannot_be_read_is_left_alone(harness):
    harness.put((b"a", b"1" * 50))
    harness.put((b"a", b"2" * 50))
    harness.log.roll()
    with open(harness.log.segments[0].path(), "r+b") as file:
        file.seek(80)
        file.write(b"!!!!")
    plan = harness.cleaner.plan(harness.log)
    with pytest.raises(KafkaError) as failure:
        harness.cleaner.build(plan)
    harness.cleaner.abort(harness.log, failure.value)
    assert harness.cleaner.next_to_clean([harness.log]) is None
    assert not list(Path(harness.log.folder).glob("*.cleaned"))


def test_a_full_disk_takes_the_log_dir_offline_and_leaves_the_log(harnesses):
    disk = FaultyDisk()
    harness = harnesses(disk=disk)
    for number in range(20):
        harness.put((b"a", b"%d" % number))
    harness.log.roll()
    disk.fail("write", ".cleaned", error_number=errno.ENOSPC, partial_bytes=10)
    plan = harness.cleaner.plan(harness.log)
    with pytest.raises(OSError) as failure:
        harness.cleaner.build(plan)
    harness.cleaner.abort(harness.log, failure.value)
    assert harness.log.log_dir.error is failure.value
    assert harness.cleaner.next_to_clean([harness.log]) is None
    assert not list(Path(harness.log.folder).glob("*.cleaned"))


def test_a_log_deleted_while_it_was_cleaned_stays_deleted(harness):
    harness.put((b"a", b"1"))
    harness.put((b"a", b"2"))
    harness.log.roll()
    plan = harness.cleaner.plan(harness.log)
    cleaned = harness.cleaner.build(plan)
    harness.manager.delete("t", 0)
    assert harness.cleaner.commit(harness.log, cleaned) == 0
    harness.cleaner.forget(harness.log)
    assert harness.manager.create("t", 0, None).next_offset == 0


def test_a_log_deleted_before_it_was_read_stops_the_cleaning(harness):
    harness.put((b"a", b"1"))
    harness.log.roll()
    plan = harness.cleaner.plan(harness.log)
    harness.manager.delete("t", 0)
    with pytest.raises(CleaningStopped):
        harness.cleaner.build(plan)


def test_an_idle_log_is_not_loaded(harness):
    harness.put((b"a", b"1"))
    harness.clean()
    harness.reopen()
    assert harness.cleaner.next_to_clean([harness.log]) is None
    assert harness.log._producers is None


def test_reading_and_writing_keep_to_the_rate(harnesses):
    harness = harnesses(cleaner_config=CleanerConfig(io_max_bytes_per_second=1000))
    for number in range(40):
        harness.put((b"k%d" % number, b"v"))
    started_ms = harness.clock.monotonic_ms()
    cleaned = harness.clean()
    # The bytes are read once for the keys and once for the copy, and written once.
    moved_bytes = 2 * cleaned.read_bytes + cleaned.written_bytes
    assert harness.clock.monotonic_ms() - started_ms == pytest.approx(moved_bytes, abs=len(harness.slept_s) + 2)


def test_what_was_cleaned_is_the_same_after_a_restart(harness):
    for number in range(100):
        harness.put((b"k%d" % (number % 9), b"v%d" % number), (b"x", None))
    harness.clean()
    before = [batch for _, batch in harness.batches()]
    harness.reopen()
    assert [batch for _, batch in harness.batches()] == before
    assert harness.log.next_offset == 200
    harness.put((b"k1", b"new"))
    assert harness.offsets()[-1] == 200


def test_times_are_found_in_a_cleaned_log(harness):
    for number in range(100):
        harness.put((b"k%d" % (number % 9), b"v%d" % number))
        harness.clock.advance(10)
    start_ms = harness.clock.wall_ms() - 1000
    harness.clean()
    found = locate_time(harness.log, start_ms, until_offset=100)
    assert (found.offset, found.timestamp_ms) == (91, start_ms + 910)
