"""Compaction: a crash at each file operation, and a comparison of random logs with a dict."""

import shutil
from dataclasses import replace
from pathlib import Path

from compacted_log_harness import COMPACTED, DAY_MS, CompactedLogHarness, committed_view, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.compaction.cleaner import CleaningStopped
from headrace.protocol.record_body import ControlKind
from headrace.protocol.records import Codec
from headrace.testing.faulty_disk import Crash, FaultyDisk

NEVER = 1_000_000


class QuickDisk(FaultyDisk):
    """Bytes that the kernel has survive a crash of the process, so this disk needs no fsync."""

    def fsync(self, fd):
        pass


def test_a_crash_at_any_point_leaves_each_segment_old_or_cleaned(tmp_path):
    base = tmp_path / "base"
    model = _fill(base)
    before = _left_in(base)
    assert not _clean_and_crash(base, tmp_path / "whole", NEVER)
    after = _left_in(tmp_path / "whole")
    assert after < before
    crash_at = 1
    while _clean_and_crash(base, tmp_path / f"{crash_at}", crash_at):
        _is_sound(tmp_path / f"{crash_at}", model, after, before)
        crash_at += 1
    assert crash_at > 30, "there were many points at which to crash"


def _clean_and_crash(base, left, crash_at):
    """Returns whether the crash came. The rest of the test uses a copy of the folder, because the dead process still
    holds its lock."""
    work = left.with_suffix(".work")
    shutil.copytree(base, work)
    disk = QuickDisk()
    harness = CompactedLogHarness(work, disk=disk)
    disk.crash_at(crash_at)
    try:
        harness.clean_closed()
    except Crash:
        has_crashed = True
    else:
        has_crashed = False
    shutil.copytree(work, left)
    disk.crash_at(NEVER)
    harness.manager.close()
    return has_crashed


def _fill(folder):
    folder.mkdir()
    harness = CompactedLogHarness(folder, disk=QuickDisk())
    for number in range(24):
        # The first segments keep nearly all records, the last ones nearly none: some are joined, some are not.
        key = b"once%d" % number if number < 6 else b"k%d" % (number % 4)
        harness.put((key, b"v%d" % number * 20), (b"gone", None))
    transaction(harness, ControlKind.abort, (b"k1", b"never"))
    harness.log.roll()
    view = committed_view(harness)
    plan = harness.cleaner.plan(harness.log)
    groups = harness.cleaner.build(plan).groups
    assert sorted(len(group.old) for group in groups)[-1] > 1
    assert len(groups) > 1
    harness.cleaner.abort(harness.log, CleaningStopped())
    harness.manager.close()
    return view


def _left_in(folder):
    harness = CompactedLogHarness(folder, disk=QuickDisk())
    offsets = set(harness.offsets())
    harness.manager.close()
    return offsets


def _is_sound(folder, model, after, before):
    harness = CompactedLogHarness(folder, disk=QuickDisk())
    try:
        assert after <= set(harness.offsets()) <= before
        assert committed_view(harness) == model
        assert harness.log.next_offset == 50
        assert not list(Path(harness.log.folder).glob("*.cleaned"))
        assert not list(Path(harness.log.folder).glob("*.swap"))
        harness.clean_closed()
        assert committed_view(harness) == model
        assert set(harness.offsets()) == after
    finally:
        harness.manager.close()


keys = st.sampled_from([b"a", b"b", b"c", b"long key " * 5])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(keys, st.binary(max_size=40)), min_size=1, max_size=4)),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("abort"), keys),
        st.tuples(st.just("commit"), keys, st.binary(max_size=10)),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean")),
        st.tuples(st.just("wait"), st.integers(1, 2 * DAY_MS)),
        st.tuples(st.just("reopen")),
    ),
    max_size=40,
)


@given(steps=steps, codec=st.sampled_from(list(Codec)))
@settings(max_examples=60, deadline=None)
def test_a_compacted_log_is_a_dict(tmp_path_factory, steps, codec):
    harness = CompactedLogHarness(tmp_path_factory.mktemp("model"), replace(COMPACTED, segment_bytes=400), QuickDisk())
    model = {}
    sequence = 0
    try:
        for name, *args in steps:
            if name == "put":
                harness.put(*args[0], codec=codec)
                model.update(args[0])
            elif name == "delete":
                harness.put((args[0], None))
                model.pop(args[0], None)
            elif name == "abort":
                transaction(harness, ControlKind.abort, (args[0], b"never"), sequence=sequence)
                sequence += 1
            elif name == "commit":
                transaction(harness, ControlKind.commit, (args[0], args[1]), sequence=sequence)
                model[args[0]] = args[1]
                sequence += 1
            elif name == "roll":
                harness.log.roll()
            elif name == "clean":
                harness.clean()
            elif name == "wait":
                harness.clock.advance(args[0])
            else:
                harness.reopen()
            assert committed_view(harness) == model
    finally:
        harness.manager.close()
