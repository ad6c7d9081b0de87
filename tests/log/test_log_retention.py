"""Segments come and go: rolling, retention, DeleteRecords, truncation."""

import os

import pytest
from log_harness import LogHarness, append, base_offsets, batch, headers

from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.retention import MOST_AT_ONCE
from headrace.protocol.errors import OffsetOutOfRange

SIZE = len(batch(1))


def test_the_retention_demonstration_of_the_seed(harness):
    """segment.bytes=1000, retention.bytes=2000, retention.ms=60000: size keeps about 2000 bytes, time empties all."""
    harness.config = LogConfig(segment_bytes=1000, retention_bytes=2000, retention_ms=60_000, file_delete_delay_ms=1000)
    log = harness.fresh()
    for _ in range(100):
        append(log, timestamp_ms=harness.clock.wall_ms())
    before = base_offsets(log)
    assert all(segment.size_bytes <= 1000 for segment in log.segments)
    harness.manager.enforce_retention()
    assert 2000 <= log.size_bytes < 3000
    assert base_offsets(log) == before[-len(log.segments) :]
    assert log.log_start_offset == log.segments[0].base_offset > 0
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, until_offset=100)

    harness.clock.advance(60_000)
    assert harness.manager.enforce_retention() == 0
    harness.clock.advance(1)
    assert harness.manager.enforce_retention() > 0
    assert (log.log_start_offset, log.next_offset, log.size_bytes, base_offsets(log)) == (100, 100, 0, [100])

    harness.clock.advance(1000)
    harness.manager.remove_deleted()
    left = sorted(name for name in os.listdir(log.folder) if not name.endswith("checkpoint"))
    assert left == [f"{100:020d}{suffix}" for suffix in (".index", ".log", ".snapshot", ".timeindex")]
    assert append(log, timestamp_ms=harness.clock.wall_ms()).base_offset == 100


def test_nothing_above_the_high_watermark_goes(harness):
    harness.config = LogConfig(segment_bytes=2 * SIZE, retention_bytes=0)
    log = harness.fresh()
    for _ in range(6):
        append(log)
    log.high_watermark = 3
    assert log.enforce_retention() == 1
    assert log.log_start_offset == 2


def test_a_call_drops_a_bounded_number_of_segments(harness):
    """Their files are renamed on the event loop."""
    harness.config = LogConfig(segment_bytes=2 * SIZE, retention_bytes=4 * SIZE, retention_ms=1000)
    log = harness.fresh()
    for _ in range(100):
        append(log, timestamp_ms=harness.clock.wall_ms())
    counts = []
    while count := log.enforce_retention():
        counts.append(count)
    assert counts == [MOST_AT_ONCE, MOST_AT_ONCE, MOST_AT_ONCE]
    assert (log.log_start_offset, log.size_bytes) == (96, 4 * SIZE)


def test_delete_records_of_many_segments_leaves_some_files_to_retention(harness):
    harness.config = LogConfig(segment_bytes=2 * SIZE)
    log = harness.fresh()
    for _ in range(40):
        append(log)
    log.advance_log_start(40)
    assert (log.log_start_offset, len(log.segments)) == (40, 20 - MOST_AT_ONCE)
    with pytest.raises(OffsetOutOfRange):
        log.read(38, 1, until_offset=40)
    assert log.enforce_retention() == 20 - MOST_AT_ONCE - 1
    assert (log.log_start_offset, base_offsets(log)) == (40, [38])
    assert harness.reborn().next_offset == 40


def test_a_compacted_topic_keeps_old_segments(harness):
    harness.config = LogConfig(
        segment_bytes=SIZE, retention_bytes=0, retention_ms=0, cleanup_policy=frozenset({"compact"})
    )
    log = harness.fresh()
    append(log), append(log)
    harness.clock.advance(10**9)
    assert log.enforce_retention() == 0


def test_segment_ms_counts_from_the_first_batch(harness):
    harness.config = LogConfig(segment_ms=1000)
    log = harness.fresh()
    start = harness.clock.wall_ms()
    append(log, timestamp_ms=start), append(log, timestamp_ms=start + 1000)
    assert base_offsets(log) == [0]
    log = harness.restarted()
    append(log, timestamp_ms=start + 1001)
    assert base_offsets(log) == [0, 2]


def test_a_compacted_log_rolls_in_time_for_its_compaction_lag(harness):
    harness.config = LogConfig(segment_ms=5000, max_compaction_lag_ms=1000, cleanup_policy=frozenset({"compact"}))
    log = harness.fresh()
    start = harness.clock.wall_ms()
    append(log, timestamp_ms=start), append(log, timestamp_ms=start + 1000)
    assert base_offsets(log) == [0]
    append(log, timestamp_ms=start + 1001)
    assert base_offsets(log) == [0, 2]


def test_a_full_index_rolls(harness):
    harness.config = LogConfig(segment_index_bytes=36, index_interval_bytes=1)
    log = harness.fresh()
    for number in range(10):
        append(log, timestamp_ms=1000 + number)
    assert len(log.segments) > 1
    assert all(len(segment.loaded()) <= 4 for segment in log.segments)
    assert len(headers(log)) == 10


def test_an_offset_too_far_from_the_base_rolls(harness):
    from headrace.log.partition_log import Origin

    log = harness.fresh()
    for offset in (0, 2**31 - 1, 2**31, 2**40):
        log.append(batch(1, base_offset=offset), leader_epoch=0, origin=Origin.REPLICATION)
    assert base_offsets(log) == [0, 2**31, 2**40]
    assert [h.base_offset for h in headers(log)] == [0, 2**31 - 1, 2**31, 2**40]
    log = harness.reborn()
    assert log.next_offset == 2**40 + 1


def test_delete_records(harness):
    harness.config = LogConfig(segment_bytes=2 * SIZE)
    log = harness.fresh()
    for _ in range(7):
        append(log)
    log.advance_log_start(5)
    assert (log.log_start_offset, base_offsets(log)) == (5, [4, 6])
    log.advance_log_start(3)
    assert log.log_start_offset == 5
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(8)
    harness.manager.checkpoint()
    log = harness.reborn()
    assert log.log_start_offset == 5
    log.high_watermark = 7
    log.advance_log_start(7)
    log = harness.restarted()
    assert (log.log_start_offset, log.next_offset) == (7, 7)


@pytest.mark.parametrize("offset", range(14))
def test_truncate_anywhere(harness, offset):
    harness.config = LogConfig(segment_bytes=400, index_interval_bytes=50)
    log = harness.fresh()
    for number in range(6):
        append(log, 2, leader_epoch=number // 2, producer_id=5, producer_epoch=0, base_sequence=number * 2)
    log.truncate_to(offset)
    end = min(12, offset - offset % 2)
    assert log.next_offset == end
    assert [h.base_offset for h in headers(log)] == list(range(0, end, 2))
    assert all(start < end for _, start in log.epochs.entries)
    assert log.size_bytes == sum(os.path.getsize(segment.path()) for segment in log.segments)
    if 0 < end < 12:
        assert log.producers.active()[0].last_sequence == end - 1
    append(log, 1, leader_epoch=9)
    log = harness.reborn()
    assert (log.next_offset, log.latest_epoch, len(headers(log))) == (end + 1, 9, end // 2 + 1)


def test_truncate_fully_and_start_elsewhere(harness):
    log = harness.fresh()
    append(log, 3)
    log.truncate_fully(50)
    assert (log.log_start_offset, log.next_offset, log.latest_epoch) == (50, 50, -1)
    assert append(log).base_offset == 50
    assert harness.restarted().next_offset == 51


def test_epochs_answer_where_they_ended(harness):
    log = harness.fresh()
    assert log.end_offset_for_epoch(0) == (-1, -1)
    append(log, 3, leader_epoch=1), append(log, 2, leader_epoch=4)
    for reopen in (None, harness.restarted, harness.reborn):
        log = reopen() if reopen else log
        wanted = {-1: (-1, -1), 0: (0, 0), 1: (1, 3), 2: (1, 3), 4: (4, 5), 5: (-1, -1)}
        assert {epoch: log.end_offset_for_epoch(epoch) for epoch in wanted} == wanted
    log.high_watermark = 5
    log.advance_log_start(2)
    assert log.epochs.entries == [(1, 2), (4, 3)]


def test_retention_replaces_no_file_while_the_event_loop_waits(tmp_path):
    class Watching(Disk):
        def __init__(self):
            self.replaced = []

        def rename(self, old_path, new_path):
            if os.path.exists(new_path):
                self.replaced.append(new_path)
            super().rename(old_path, new_path)

    disk = Watching()
    harness = LogHarness(tmp_path, disk=disk, config=LogConfig(segment_bytes=2 * SIZE, retention_bytes=2 * SIZE))
    log = harness.fresh()
    append(log, leader_epoch=1)
    for _ in range(6):
        append(log, leader_epoch=2)
    log.high_watermark = log.next_offset
    disk.replaced.clear()
    assert log.enforce_retention()
    assert disk.replaced == []
    assert log.epochs.entries == [(2, log.log_start_offset)]
    start_offset = log.log_start_offset
    assert harness.reborn().epochs.entries == [(2, start_offset)], "a load of the file cuts its start"
    assert harness.restarted().epochs.entries == [(2, start_offset)]
    harness.kill()
