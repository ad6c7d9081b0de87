"""After a kill, a log has its longest valid prefix, and everything else is rebuilt from it."""

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_harness import LogHarness, append, base_offsets, batch, headers, locate_time

from headrace.log.config import LogConfig
from headrace.protocol.errors import OutOfOrderSequence
from headrace.testing.faulty_disk import FaultyDisk

SIZE = len(batch(2))


def filled(harness, batches=5):
    log = harness.fresh()
    for number in range(batches):
        append(log, 2, leader_epoch=number // 3, producer_id=5, producer_epoch=0, base_sequence=2 * number)
    return log


def test_the_last_segment_cut_at_every_byte_of_its_last_batch(harness, caplog):
    log = filled(harness)
    path, size = log.active.path(), log.active.size_bytes
    harness.kill()
    whole = Path(path).read_bytes()
    for cut in range(SIZE):
        with open(path, "wb") as file:
            file.write(whole[: size - SIZE + cut])
        caplog.clear()
        log = harness.fresh()
        assert log.next_offset == 8
        assert [h.base_offset for h in headers(log)] == [0, 2, 4, 6]
        assert log.producers.active()[0].last_sequence == 7
        assert os.path.getsize(path) == size - SIZE == log.size_bytes
        assert len(caplog.records) == (1 if cut else 0)
        harness.kill()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), flips=st.integers(1, 4), segment_bytes=st.sampled_from([400, 10_000]))
def test_flipped_bytes_anywhere_leave_a_valid_prefix(tmp_path_factory, seed, flips, segment_bytes):
    folder = tmp_path_factory.mktemp("log")
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100)
    harness = LogHarness(folder / "data", config=config, disk=FaultyDisk())
    filled(harness, 8)
    harness.kill()
    rng = random.Random(seed)
    paths = sorted(entry.path for entry in os.scandir(folder / "data" / "t-0"))
    for _ in range(flips):
        path = rng.choice(paths)
        with open(path, "r+b") as file:
            data = bytearray(file.read())
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                file.seek(0)
                file.write(data)
    log = harness.fresh()
    found = [h.base_offset for h in headers(log)]
    assert found == list(range(0, log.next_offset, 2))
    append(log, leader_epoch=9)
    end = log.next_offset
    assert harness.restarted().next_offset == end
    shutil.rmtree(folder)


def test_only_segments_from_the_recovery_point_on_are_scanned(harness, caplog):
    harness.config = LogConfig(segment_bytes=2 * SIZE)
    log = filled(harness, 9)
    first = log.segments[0].path()
    log.flush()
    harness.manager.checkpoint()
    harness.kill()
    with open(first, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    assert harness.fresh().next_offset == 18
    assert not caplog.records


def test_what_lies_behind_a_bad_batch_goes(harness, caplog):
    harness.config = LogConfig(segment_bytes=2 * SIZE)
    log = filled(harness, 9)
    second = log.segments[1]
    path = second.path()
    harness.kill()
    with open(path, "r+b") as file:
        file.seek(SIZE + 70)
        file.write(b"\x00\x01")
    log = harness.fresh()
    assert (log.next_offset, base_offsets(log)) == (6, [0, 4])
    assert "cut at offset 6" in caplog.text
    assert append(log).base_offset == 6
    assert harness.reborn().next_offset == 7


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "short", "insane"])
def test_an_index_of_an_older_segment_is_rebuilt_when_it_is_used(harness, suffix, damage):
    harness.config = LogConfig(segment_bytes=1000, index_interval_bytes=100)
    log = filled(harness, 20)
    path = log.segments[0].path(suffix)
    right = Path(path).read_bytes()
    harness.stop()
    if damage == "missing":
        os.unlink(path)
    else:
        with open(path, "wb") as file:
            file.write(right[:-3] if damage == "short" else right[::-1])
    log = harness.fresh()
    assert [h.base_offset for h in headers(log)] == list(range(0, 40, 2))
    locate_time(log, 1, until_offset=100)
    assert Path(path).read_bytes() == right


def test_a_damaged_snapshot_is_passed_over(harness, caplog):
    log = filled(harness, 3)
    log = harness.restarted()
    for number in range(3, 5):
        append(log, 2, producer_id=5, producer_epoch=0, base_sequence=2 * number)
    harness.stop()
    newest = max(entry.path for entry in os.scandir(log.folder) if entry.name.endswith(".snapshot"))
    with open(newest, "r+b") as file:
        file.write(b"\x00\x01\x00\x00")
    log = harness.fresh()
    assert log.producers.active()[0].last_sequence == 9
    assert "snapshot" in caplog.text
    duplicate = append(log, 2, producer_id=5, producer_epoch=0, base_sequence=8)
    assert duplicate.is_duplicate
    assert duplicate.base_offset == 8


def test_leftovers_are_removed(harness):
    log = filled(harness)
    folder = Path(log.folder)
    harness.kill()
    for name in (
        "00000000000000000099.index",
        "00000000000000000007.log.deleted",
        "x.tmp",
        "00000000000000000000.log.cleaned",
    ):
        (folder / name).write_bytes(b"junk")
    assert harness.fresh().next_offset == 10
    left = {name.split(".", 1)[1] for name in os.listdir(folder) if "." in name}
    assert left == {"log", "index", "timeindex"}


def test_a_kill_right_after_an_acknowledged_append_loses_nothing(harness):
    log = harness.fresh()
    for number in range(5):
        append(log)
        log = harness.reborn()
        assert log.next_offset == number + 1


def test_recovery_on_several_threads(harness):
    harness.open()
    for partition in range(8):
        append(harness.log("t", partition), 3)
    harness.kill()
    harness.open(threads=4)
    assert harness.report.recovered == harness.report.logs == 8
    assert {log.next_offset for log in harness.manager.all()} == {3}


def _five_in_flight(log, producer_id, *, first=0):
    """Sends five batches of two records, as many as a producer has in flight; returns base offsets by sequence."""
    return {
        sequence: append(log, 2, producer_id=producer_id, producer_epoch=0, base_sequence=sequence).base_offset
        for sequence in range(first, first + 10, 2)
    }


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("others", [0, 3])
def test_all_five_batches_in_flight_are_known_again_although_a_snapshot_has_one(harness, end, others):
    batch_bytes = len(batch(2))
    harness.config = LogConfig(segment_bytes=(1 + others) * 2 * batch_bytes)  # rolls, with a snapshot
    log = harness.fresh()
    for number in range(others):
        append(log, producer_id=100 + number, producer_epoch=0, base_sequence=0)
    _five_in_flight(log, 7)
    offsets = _five_in_flight(log, 7, first=10)
    log = harness.restarted() if end == "stop" else harness.reborn()

    for sequence, offset in offsets.items():
        again = append(log, 2, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert (again.is_duplicate, again.base_offset) == (True, offset)
    with pytest.raises(OutOfOrderSequence, match="the sequence is 8; 20 was expected"):  # only five are kept
        append(log, 2, producer_id=7, producer_epoch=0, base_sequence=8)
    assert not append(log, producer_id=7, producer_epoch=0, base_sequence=20).is_duplicate


def test_batches_of_an_older_epoch_are_not_known_again(harness):
    log = harness.fresh()
    _five_in_flight(log, 7)
    append(log, producer_id=7, producer_epoch=1, base_sequence=0)
    log = harness.restarted()
    with pytest.raises(OutOfOrderSequence):
        append(log, 2, producer_id=7, producer_epoch=1, base_sequence=8)
