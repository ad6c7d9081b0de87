"""Reads by offset and by time, across segments and index entries."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_harness import LogHarness, append, base_offsets, batch, headers, locate_max_timestamp, locate_time

from headrace.log.config import LogConfig
from headrace.log.partition_log import TimestampAndOffset
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import OffsetOutOfRange
from headrace.protocol.record_body import Record
from headrace.protocol.records import iter_headers
from headrace.testing.faulty_disk import FaultyDisk

SIZE = len(batch(1))


def read_offsets(log, *args, **kwargs):
    region = log.read(*args, **kwargs).region
    if region is None:
        return None
    data = region.read()
    found = [header.base_offset for _, header in iter_headers(data)]
    assert sum(header.size_bytes for _, header in iter_headers(data)) == len(data) == len(region)
    return found


def test_bounds(harness):
    log = harness.fresh()
    assert log.read(0, 100, until_offset=0).region is None
    append(log, 2)
    assert log.read(2, 100, until_offset=2).region is None
    assert log.read(0, 100, until_offset=0).region is None
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100, until_offset=2)


def test_the_batch_that_contains_the_offset_comes_first(harness):
    log = harness.fresh()
    append(log, 5), append(log, 5)
    assert read_offsets(log, 3, 1 << 20, until_offset=10) == [0, 5]
    assert read_offsets(log, 7, 1 << 20, until_offset=10) == [5]


def test_never_a_batch_that_reaches_the_bound(harness):
    log = harness.fresh()
    append(log, 5), append(log, 5)
    assert read_offsets(log, 0, 1 << 20, until_offset=9) == [0]
    assert read_offsets(log, 0, 1 << 20, until_offset=4) is None


def test_max_bytes_cuts_between_batches_but_gives_at_least_one(harness):
    log = harness.fresh()
    for _ in range(5):
        append(log)
    assert read_offsets(log, 0, 3 * SIZE + 5, until_offset=5) == [0, 1, 2]
    assert read_offsets(log, 1, 1, until_offset=5) == [1]
    assert read_offsets(log, 1, 1, until_offset=5, at_least_one=False) is None


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=60),
    reopen=st.booleans(),
    data=st.data(),
)
def test_reads_find_what_was_appended(tmp_path_factory, counts, reopen, data):
    config = LogConfig(segment_bytes=1000, index_interval_bytes=150)
    harness = LogHarness(tmp_path_factory.mktemp("log"), config=config, disk=FaultyDisk())
    log = harness.fresh()
    bases = [append(log, count).base_offset for count in counts]
    if reopen:
        log = harness.restarted()
    end = log.next_offset
    for _ in range(10):
        offset = data.draw(st.integers(0, end - 1))
        until = data.draw(st.integers(offset + 1, end))
        max_bytes = data.draw(st.integers(0, 1200))
        found = read_offsets(log, offset, max_bytes, until_offset=until)
        expected = max(base for base in bases if base <= offset)
        visible = [
            base for base, count in zip(bases, counts, strict=True) if base >= expected and base + count <= until
        ]
        assert (found or []) == visible[: len(found or [])]
        assert bool(found) == bool(visible)
    assert [header.base_offset for header in headers(log)] == bases
    harness.kill()


def test_a_region_outlives_its_segment(harness):
    harness.config = LogConfig(segment_bytes=200, file_delete_delay_ms=0, retention_bytes=0)
    log = harness.fresh()
    for _ in range(6):
        append(log)
    region = log.read(0, 1000, until_offset=6).region
    log.enforce_retention()
    harness.manager.remove_deleted()
    harness.manager.delete("t", 0)
    harness.manager.remove_deleted()
    assert next(iter_headers(region.read()))[1].base_offset == 0
    fd = region.fileno()
    del region
    with pytest.raises(OSError):
        os.fstat(fd)


def test_few_open_files_are_enough(harness, tmp_path):
    from headrace.log.log_manager import LogManager

    config = LogConfig(segment_bytes=200)
    manager = LogManager(
        [tmp_path / "few"], default_config=config, clock=harness.clock,
        broker_id=1, cluster_id="c", open_files_limit=4,
    )  # fmt: skip
    manager.load()
    logs = [manager.create("t", number, None) for number in range(10)]
    for _ in range(5):
        for log in logs:
            append(log)
    assert len(manager.log_dirs[0].files) <= 4
    assert all([header.base_offset for header in headers(log)] == [0, 1, 2, 3, 4] for log in logs)
    manager.abandon()


def test_by_time_the_first_record_at_or_after_it(harness):
    harness.config = LogConfig(segment_bytes=600, index_interval_bytes=100)
    log = harness.fresh()
    start = 1_699_999_000_000
    for number in range(20):
        stamped = [Record(i, start + number * 10 + i * 4, b"k", b"v", ()) for i in range(3)]
        log.append(build_batch(stamped, base_offset=0), leader_epoch=number // 10)
    assert len(log.segments) > 2
    for reopen in (None, harness.restarted, harness.reborn):
        log = reopen() if reopen else log
        assert locate_time(log, start, until_offset=60) == TimestampAndOffset(0, start, 0)
        assert locate_time(log, start + 101, until_offset=60) == TimestampAndOffset(31, start + 104, 1)
        assert locate_time(log, start + 109, until_offset=60) == TimestampAndOffset(33, start + 110, 1)
        assert locate_time(log, start + 109, until_offset=33) is None
        assert locate_time(log, start + 199, until_offset=60) is None
        assert locate_max_timestamp(log) == TimestampAndOffset(59, start + 198, 1)


def test_the_largest_timestamp_need_not_be_the_last(harness):
    log = harness.fresh()
    assert locate_max_timestamp(log) is None
    for timestamp_ms in (100, 300, 300, 200):
        append(log, timestamp_ms=timestamp_ms)
    assert locate_max_timestamp(log) == TimestampAndOffset(1, 300, 0)


def test_a_gap_at_the_end_of_a_compacted_segment_is_passed_over(harness):
    from headrace.log.partition_log import Origin

    log = harness.fresh()
    log.append(batch(1, base_offset=0, leader_epoch=0), leader_epoch=0, origin=Origin.REPLICATION)
    log.roll(5)
    log.append(batch(1, base_offset=7, leader_epoch=0), leader_epoch=0, origin=Origin.REPLICATION)
    assert base_offsets(log) == [0, 5]
    assert read_offsets(log, 3, 1000, until_offset=8) == [7]
    assert read_offsets(log, 6, 1000, until_offset=8) == [7]
