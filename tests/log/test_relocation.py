"""A log moves to another dir: while it is written, with retention and compaction in between, and through crashes."""

from dataclasses import replace
from pathlib import Path

import pytest
from log_harness import LogHarness, append, base_offsets, headers

from headrace.log.compaction.cleaner import Cleaner, CleaningStopped
from headrace.log.config import LogConfig
from headrace.log.relocation import Relocation
from headrace.log.segment import Segment
from headrace.protocol.errors import InvalidTopic, OutOfOrderSequence, StorageError
from headrace.testing.faulty_disk import Crash, FaultyDisk

SMALL = LogConfig(segment_bytes=400, file_delete_delay_ms=0)


@pytest.fixture
def two(tmp_path):
    made = LogHarness(tmp_path / "a", tmp_path / "b", config=SMALL)
    yield made
    made.kill()


def filled(harness, disk=None):
    """Three closed segments and an active one, a start inside the first, a producer, two epochs."""
    log = harness.open(disk=disk).create("t", 0, None)
    for number in range(6):
        append(log, 2, value=b"v" * 50, leader_epoch=number // 3)
    append(log, 1, producer_id=7, producer_epoch=0, base_sequence=0, leader_epoch=1)
    append(log, 1, producer_id=7, producer_epoch=0, base_sequence=1, leader_epoch=1)
    log.advance_log_start(1)
    harness.manager.checkpoint()
    return log


def other_home(harness, log):
    return next(log_dir for log_dir in harness.manager.log_dirs if log_dir is not log.log_dir)


def begun(harness, log):
    relocation = Relocation(log, other_home(harness, log))
    relocation.note(relocation.copy(relocation.plan()))
    return relocation


def facts(log):
    return log.log_start_offset, log.next_offset, headers(log), log.end_offset_for_epoch(0), log.latest_epoch


def folders(harness):
    return sorted(path.name for folder in harness.folders for path in folder.iterdir() if path.is_dir())


def test_what_was_cut_and_written_anew_is_copied_anew(two):
    log = two.open().create("t", 0, None)
    append(log, 1, value=b"kept")
    append(log, 1, value=b"lost")
    relocation = begun(two, log)
    log.truncate_to(1)
    append(log, 1, value=b"else", leader_epoch=2)
    before = facts(log)
    assert facts(two.manager.replace_with_copy(relocation)) == before


def test_everything_is_in_the_new_place(two):
    log = filled(two)
    before = facts(log)
    relocation = begun(two, log)
    moved = two.manager.replace_with_copy(relocation)
    assert facts(moved) == before
    assert moved.log_dir is relocation.log_dir
    assert moved.high_watermark == before[1]
    assert two.manager.get("t", 0) is moved
    assert log.is_closed


def test_what_comes_meanwhile_is_moved_too(two):
    log = filled(two)
    relocation = begun(two, log)
    append(log, 3, leader_epoch=1)
    log.roll()
    append(log, 1, leader_epoch=2)
    before = facts(log)
    assert facts(two.manager.replace_with_copy(relocation)) == before


def test_a_segment_that_is_closed_meanwhile_brings_its_indexes(two):
    log = filled(two)
    relocation = begun(two, log)
    log.roll()
    (missing,) = relocation.plan()
    assert (missing.start, missing.is_closed) == (missing.end, True)
    relocation.note(relocation.copy([missing]))
    assert relocation.plan() == []
    names = {path.name for path in Path(log.folder).iterdir()}
    moved = two.manager.replace_with_copy(relocation)
    assert {path.name for path in Path(moved.folder).iterdir()} == names


def test_what_is_dropped_meanwhile_stays_gone(two):
    log = filled(two)
    relocation = begun(two, log)
    log.advance_log_start(5)
    before, bases = facts(log), base_offsets(log)
    moved = two.manager.replace_with_copy(relocation)
    assert (facts(moved), base_offsets(moved)) == (before, bases)
    assert len(list(Path(moved.folder).glob("*.log"))) == len(bases)


def test_a_segment_that_is_gone_while_it_is_copied_is_passed_over(two):
    log = filled(two)
    relocation = Relocation(log, other_home(two, log))
    missing = relocation.plan()
    log.advance_log_start(5)
    two.manager.remove_deleted()
    copied = relocation.copy(missing)
    assert len(copied) < len(missing)
    relocation.note(copied)
    before = facts(log)
    assert facts(two.manager.replace_with_copy(relocation)) == before


def test_a_segment_that_was_replaced_is_copied_anew(two):
    log = filled(two)
    relocation = begun(two, log)
    assert relocation.plan() == []
    first = log.segments[0]
    log.segments[0] = Segment(log.log_dir, log.folder, first.base_offset, first.size_bytes, first.index_interval_bytes)
    assert [part.segment.base_offset for part in relocation.plan()] == [0]


def test_the_producers_go_on(two):
    log = filled(two)
    moved = two.manager.replace_with_copy(begun(two, log))
    again = append(moved, 1, producer_id=7, producer_epoch=0, base_sequence=0, leader_epoch=1)
    assert (again.is_duplicate, again.base_offset) == (True, 12)
    with pytest.raises(OutOfOrderSequence):
        append(moved, 1, producer_id=7, producer_epoch=0, base_sequence=5, leader_epoch=1)


def test_an_empty_log(two):
    log = two.open().create("t", 0, None)
    moved = two.manager.replace_with_copy(begun(two, log))
    assert (moved.next_offset, append(moved).base_offset) == (0, 0)


def test_the_old_folder_goes(two):
    log = filled(two)
    old_dir = log.log_dir
    two.manager.replace_with_copy(begun(two, log))
    two.manager.remove_deleted()
    assert folders(two) == ["t-0"]
    assert not list(two.folders[[str(path) for path in two.folders].index(old_dir.path)].glob("t-*"))


@pytest.mark.parametrize("end", ["restarted", "reborn"])
def test_it_is_there_after_a_restart(two, end):
    log = filled(two)
    moved = two.manager.replace_with_copy(begun(two, log))
    before, log_dir = facts(moved), moved.log_dir.path
    found = getattr(two, end)()
    assert (facts(found), found.log_dir.path) == (before, log_dir)


def test_a_cancelled_copy_is_removed(two):
    log = filled(two)
    relocation = begun(two, log)
    assert any(name.endswith("-future") for name in folders(two))
    relocation.cancelled.set()
    relocation.discard()
    two.manager.remove_deleted()
    assert folders(two) == ["t-0"]


def test_a_copy_that_a_crash_left_is_removed_at_the_next_start(two):
    log = filled(two)
    before = facts(log)
    begun(two, log)
    assert facts(two.reborn()) == before
    two.manager.remove_deleted()
    assert folders(two) == ["t-0"]


def test_how_far_it_is(two):
    log = filled(two)
    relocation = Relocation(log, other_home(two, log))
    assert (relocation.size_bytes, relocation.next_offset) == (0, 0)
    relocation.note(relocation.copy(relocation.plan()[:2]))
    assert relocation.next_offset == log.segments[2].base_offset
    relocation.note(relocation.copy(relocation.plan()))
    assert (relocation.size_bytes, relocation.next_offset) == (log.size_bytes, log.next_offset)


def test_a_name_that_leaves_no_room(two):
    log = two.open().create("x" * 240, 0, None)
    with pytest.raises(InvalidTopic):
        Relocation(log, other_home(two, log))


def test_a_full_disk_leaves_the_log_where_it_is(two):
    disk = FaultyDisk()
    log = filled(two, disk)
    before = facts(log)
    disk.fail("write", "-future")
    with pytest.raises(OSError):
        begun(two, log)
    disk.heal()
    assert facts(log) == before
    append(log, leader_epoch=1)


def test_a_source_that_cannot_be_read_goes_offline(two):
    disk = FaultyDisk()
    log = filled(two, disk)
    disk.fail("pread", log.folder)
    with pytest.raises(StorageError):
        begun(two, log)
    assert log.log_dir.error is not None
    disk.heal()


def changes_of_a_move(folder):
    harness = LogHarness(folder / "a", folder / "b", config=SMALL)
    disk = FaultyDisk()
    log = filled(harness, disk)
    before = facts(log)
    disk.changes.clear()
    harness.manager.replace_with_copy(begun(harness, log))
    harness.kill()
    return len(disk.changes), before


def test_a_crash_at_any_moment_leaves_the_whole_log(tmp_path):
    count, before = changes_of_a_move(tmp_path / "counted")
    assert count > 20
    for change in range(1, count + 1):
        folder = tmp_path / str(change)
        harness = LogHarness(folder / "a", folder / "b", config=SMALL)
        disk = FaultyDisk()
        log = filled(harness, disk)
        disk.crash_at(change)
        with pytest.raises(Crash):
            harness.manager.replace_with_copy(begun(harness, log))
        harness.kill()
        harness.disk = None
        harness.open()
        found = harness.manager.get("t", 0)
        assert found is not None, change
        assert facts(found) == before, change
        harness.manager.remove_deleted()
        assert folders(harness) == ["t-0"], change
        harness.kill()


@pytest.fixture
def compacted(tmp_path):
    made = LogHarness(tmp_path / "a", tmp_path / "b", config=replace(SMALL, cleanup_policy=frozenset({"compact"})))
    yield made
    made.kill()


def test_compaction_before_the_end_of_a_move_is_moved(compacted):
    log, cleaner = filled(compacted), Cleaner(compacted.clock)
    relocation = begun(compacted, log)
    assert cleaner.commit(log, cleaner.build(cleaner.plan(log))) > 0
    before = facts(log)
    assert facts(compacted.manager.replace_with_copy(relocation)) == before


def test_compaction_that_a_move_overtakes_is_dropped(compacted):
    log, cleaner = filled(compacted), Cleaner(compacted.clock)
    before = facts(log)
    cleaned = cleaner.build(cleaner.plan(log))
    moved = compacted.manager.replace_with_copy(begun(compacted, log))
    assert cleaner.commit(log, cleaned) == 0
    assert facts(moved) == before
    assert all(log_dir.error is None for log_dir in compacted.manager.log_dirs)


def test_compaction_that_begins_before_and_builds_after_a_move_stops(compacted):
    log, cleaner = filled(compacted), Cleaner(compacted.clock)
    plan = cleaner.plan(log)
    compacted.manager.replace_with_copy(begun(compacted, log))
    with pytest.raises(CleaningStopped) as stopped:
        cleaner.build(plan)
    cleaner.abort(log, stopped.value)
    assert all(log_dir.error is None for log_dir in compacted.manager.log_dirs)
