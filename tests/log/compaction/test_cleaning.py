"""Compaction: which records, batches and markers of a log stay, and what a reader of the log sees."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from compacted_log_harness import COMPACTED, DAY_MS, CompactedLogHarness, committed_view, transaction

from headrace.log.config import LogConfig
from headrace.log.partition_log import Origin
from headrace.protocol.batch_building import build_batch
from headrace.protocol.record_body import ControlKind, Record
from headrace.protocol.records import Codec, iter_headers

# --------------------------------------------------------------------------------------------------------- what stays


def test_each_key_keeps_its_last_value(harness):
    for number in range(50):
        harness.put((b"k%d" % (number % 5), b"v%d" % number))
    cleaned = harness.clean()
    assert harness.offsets() == [45, 46, 47, 48, 49]
    assert harness.view() == {b"k%d" % at: b"v%d" % (45 + at) for at in range(5)}
    assert cleaned.written_bytes < cleaned.read_bytes
    assert harness.log.size_bytes == sum(segment.size_bytes for segment in harness.log.segments)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_leave_a_batch_and_the_rest_keeps_its_offsets(harness, codec):
    harness.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), codec=codec)
    harness.put((b"c", b"2"), codec=codec)
    harness.clean()
    (first, _), (second, _) = harness.batches()
    assert (first.base_offset, first.last_offset, first.record_count, first.codec_number) == (0, 3, 2, codec)
    assert second.base_offset == 4
    assert [(record.offset, record.key, record.value) for record in harness.records()] == [
        (1, b"b", b"1"), (2, b"a", b"2"), (4, b"c", b"2"),
    ]  # fmt: skip


def test_a_small_batch_with_many_records_takes_little_memory(tmp_path):
    """The records of a batch were a list, and a batch of some kilobytes may have 14 million records."""
    count = 50_000
    harness = CompactedLogHarness(tmp_path, replace(COMPACTED, segment_bytes=1 << 20))
    harness.put(*[(b"k", b"v")] * count, codec=Codec.zstd)
    harness.put((b"other", b"v"))
    tracemalloc.start()
    try:
        harness.clean()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert harness.offsets() == [count - 1, count]
    assert peak_bytes < 60 * count, "the records take 12 bytes each"


def test_a_tombstone_with_many_headers_takes_little_memory(tmp_path):
    """The cleaner made objects of the headers when it set the delete horizon."""
    count = 100_000
    harness = CompactedLogHarness(tmp_path, replace(COMPACTED, segment_bytes=1 << 20))
    tombstone = Record(0, harness.clock.wall_ms(), b"k", None, (("", None),) * count)
    harness.log.append(build_batch([tombstone], codec=Codec.zstd), leader_epoch=0, origin=Origin.CLIENT)
    harness.put((b"other", b"v"))
    tracemalloc.start()
    try:
        harness.clean()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert harness.batches()[0][0].has_delete_horizon
    assert harness.records()[0] == tombstone
    assert peak_bytes < 20 * count, "a header takes two bytes"


def test_a_read_of_a_removed_offset_lands_on_the_next_one(harness):
    for number in range(60):
        harness.put((b"same", b"v%d" % number) if number % 20 else (b"k%d" % number, b"kept"))
    harness.clean()
    kept = harness.offsets()
    assert kept == [0, 20, 40, 59]
    for reopened in (False, True):
        if reopened:
            harness.reopen()
        for offset in range(60):
            region = harness.log.read(offset, 1, until_offset=60).region
            _, header = next(iter_headers(region.read()))
            assert header.last_offset == min(at for at in kept if at >= offset)


def test_the_active_segment_is_left_alone(harness):
    harness.put((b"a", b"1"))
    harness.log.roll()
    harness.put((b"a", b"2"))
    harness.put((b"a", b"3"))
    harness.clean_closed()
    assert harness.offsets() == [0, 1, 2], "what is not in a closed segment supersedes nothing yet"


def test_nothing_at_or_above_the_high_watermark_is_touched(harness):
    for number in range(10):
        harness.put((b"a", b"%d" % number))
    harness.log.roll()
    harness.log.high_watermark = 4
    harness.clean_closed()
    assert harness.offsets() == [3, 4, 5, 6, 7, 8, 9]


def test_segments_are_joined_up_to_segment_bytes(harness):
    for number in range(200):
        harness.put((b"k%d" % (number % 7), b"v" * 50))
    before = len(harness.log.segments)
    harness.clean()
    assert before > 10
    assert len(harness.log.segments) < before
    assert all(segment.size_bytes <= 1000 for segment in harness.log.segments)
    for _ in range(4):
        harness.put((b"k0", b"v"))
        harness.clean()
    assert len(harness.log.segments) <= 3


def test_records_without_a_key_go(harnesses):
    harness = harnesses(LogConfig(segment_bytes=1000))
    harness.put((None, b"1"), (b"k", b"1"))
    harness.put((None, b"2"))
    harness.log.config = COMPACTED
    harness.clean()
    assert harness.offsets() == [1]


def test_long_keys_are_told_apart(harness):
    harness.put((b"x" * 40 + b"1", b"a"), (b"x" * 40 + b"2", b"b"), (b"x" * 40 + b"1", b"c"))
    harness.put((b"y", b""))
    harness.clean()
    assert harness.offsets() == [1, 2, 3]


# --------------------------------------------------------------------------------------------------------- tombstones


def test_a_tombstone_goes_after_delete_retention(harness):
    harness.put((b"a", b"1"))
    harness.put((b"a", None))
    harness.put((b"b", b"1"))
    harness.clean()
    assert harness.offsets() == [1, 2], "the tombstone stays, so that readers learn of it"
    horizon_ms = harness.clock.wall_ms() + DAY_MS
    (tombstone, _), _ = harness.batches()
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == horizon_ms
    assert harness.records()[0].timestamp_ms == horizon_ms - DAY_MS

    harness.clock.advance(DAY_MS - 1)
    harness.put((b"c", b"1"))
    harness.clean()
    assert harness.offsets() == [1, 2, 3]

    harness.clock.advance(1)
    harness.put((b"c", b"2"))
    harness.clean()
    assert harness.offsets() == [2, 4]


def test_the_horizon_is_set_once(harness):
    harness.put((b"a", None))
    harness.clean()
    (first, _), *_ = harness.batches()
    harness.clock.advance(1000)
    harness.put((b"b", b"1"))
    harness.clean()
    (second, _), *_ = harness.batches()
    assert first.base_timestamp == second.base_timestamp


# ------------------------------------------------------------------------------------------ producers and transactions


def test_the_last_sequence_of_a_producer_stays_as_an_empty_batch(harness):
    producer = {"producer_id": 7, "producer_epoch": 0}
    harness.put((b"a", b"1"), base_sequence=0, **producer)
    harness.put((b"a", b"2"), base_sequence=1, **producer)
    harness.put((b"a", b"3"))
    harness.clean()
    (empty, _), (last, _) = harness.batches()
    assert (empty.base_offset, empty.record_count, empty.last_sequence) == (1, 0, 1)
    assert last.base_offset == 2
    harness.reopen()
    duplicate = harness.log.append(
        build_batch([Record(0, harness.clock.wall_ms(), b"a", b"2")], base_sequence=1, **producer), leader_epoch=0
    )
    assert duplicate.is_duplicate


def test_an_empty_batch_goes_when_its_producer_is_forgotten(harness):
    harness.put((b"a", b"1"), base_sequence=0, producer_id=7, producer_epoch=0)
    harness.put((b"a", b"2"))
    harness.clean()
    assert len(harness.batches()) == 2
    harness.clock.advance(DAY_MS + 1)
    harness.log.expire_producers()
    harness.put((b"b", b"1"))
    harness.clean()
    assert [header.base_offset for header, _ in harness.batches()] == [1, 2]


def test_aborted_records_go_and_supersede_nothing(harness):
    harness.put((b"a", b"1"))
    transaction(harness, ControlKind.abort, (b"a", b"2"), (b"b", b"2"))
    transaction(harness, ControlKind.commit, (b"c", b"3"), sequence=2)
    harness.put((b"d", b"4"))
    harness.clean()
    assert harness.view() == {b"a": b"1", b"c": b"3", b"d": b"4"}
    assert [header.base_offset for header, _ in harness.batches() if header.is_control] == [3, 5]
    assert [txn.first_offset for txn in harness.log.aborted_transactions(0, 10)] == [1]


def test_a_marker_goes_once_its_transaction_is_gone_and_its_horizon_past(harness):
    transaction(harness, ControlKind.abort, (b"a", b"1"))
    transaction(harness, ControlKind.commit, (b"b", b"2"), sequence=1)
    transaction(harness, ControlKind.commit, (b"b", b"3"), sequence=2)

    def markers():
        return [(h.base_offset, h.has_delete_horizon) for h, _ in harness.batches() if h.is_control]

    harness.clean()
    assert markers() == [(1, False), (3, False), (5, False)], "data before each was met in this round"
    harness.put((b"x", b"1"))
    harness.clean()
    assert markers() == [(1, True), (3, True), (5, False)]
    assert harness.log.aborted_transactions(0, 10) == []
    harness.clock.advance(DAY_MS)
    harness.put((b"x", b"2"))
    harness.clean()
    assert markers() == [(5, False)]
    assert harness.view() == {b"b": b"3", b"x": b"2"}


def test_the_epoch_of_a_producer_that_only_left_a_marker_stays_as_an_empty_batch(harnesses):
    harness = harnesses(replace(COMPACTED, delete_retention_ms=1000))
    transaction(harness, None, (b"a", b"1"))
    harness.end_transaction(ControlKind.abort, 9, epoch=1)
    for _ in range(3):
        harness.put((b"x", b"1"))
        harness.clean()
        harness.clock.advance(1000)
    (marker, _), *_ = harness.batches()
    assert marker.is_control
    assert (marker.base_offset, marker.record_count, marker.producer_epoch) == (1, 0, 1)
    harness.manager.close()
    for snapshot in Path(harness.log.folder).glob("*.snapshot"):
        snapshot.unlink()
    harness.open()
    assert committed_view(harness) == {b"x": b"1"}
    assert harness.log.producers.first_open_offset() is None


def test_an_open_transaction_is_not_touched(harness):
    harness.put((b"a", b"1"))
    harness.put((b"a", b"2"))
    transaction(harness, None, (b"a", b"3"))
    harness.put((b"a", b"4"))
    harness.log.roll()
    harness.clean_closed()
    assert harness.offsets() == [1, 2, 3]
    harness.end_transaction(ControlKind.abort, 9)
    harness.clean()
    assert harness.offsets() == [3]


def test_a_transaction_whose_marker_is_in_the_active_segment(harness):
    harness.put((b"a", b"1"))
    transaction(harness, None, (b"a", b"2"))
    harness.log.roll()
    harness.end_transaction(ControlKind.abort, 9)
    harness.clean_closed()
    assert harness.view() == {b"a": b"1"}
