"""Appends: which batches are accepted or rejected, and what changes in a batch."""

import struct

import pytest
from crc32c import crc32c
from log_harness import append, batch, headers, records

from headrace.log.config import LogConfig
from headrace.log.partition_log import Origin
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import Codec, check_batch, iter_headers


def with_field(data, at, form, value):
    """A batch with one changed header field, and with a crc that matches."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_offsets_count_up_and_the_bytes_are_the_producers_but_for_offset_and_epoch(harness):
    log = harness.fresh()
    sent = batch(3)
    first, second = append(log, 3, leader_epoch=4), append(log, 2, leader_epoch=4)
    assert (first.base_offset, first.last_offset, second.base_offset, second.last_offset) == (0, 2, 3, 4)
    assert (first.log_append_time_ms, first.is_duplicate, first.must_flush) == (-1, False, False)
    stored = log.read(0, 1 << 20, until_offset=5).region.read()
    assert stored[16 : len(sent)] == sent[16:]
    assert [(h.base_offset, h.leader_epoch) for _, h in iter_headers(stored)] == [(0, 4), (3, 4)]
    assert log.size_bytes == len(stored)


@pytest.mark.parametrize(
    ("at", "form", "value", "error"),
    [
        (0, ">q", 7, InvalidRecord),
        (21, ">h", 0x20, InvalidRecord),
        (21, ">h", 0x40, InvalidRecord),
        (21, ">h", 0x10, InvalidRecord),
        (21, ">h", 0x08, InvalidTimestamp),
        (21, ">h", 0x05, UnsupportedCompressionType),
        (23, ">i", 5, InvalidRecord),
        (23, ">i", -1, InvalidRecord),
        (57, ">i", 0, InvalidRecord),
        (57, ">i", -3, InvalidRecord),
        (43, ">q", 9, InvalidRecord),
        (43, ">q", -5, InvalidRecord),
        (35, ">q", 1_700_000_000_000 + 3_600_001, InvalidTimestamp),
    ],
)
def test_a_wrong_header_is_refused_and_nothing_changes(harness, at, form, value, error):
    log = harness.fresh()
    append(log)
    with pytest.raises(error):
        log.append(with_field(batch(1), at, form, value), leader_epoch=0)
    assert (log.next_offset, len(headers(log))) == (1, 1)


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b[:60], lambda b: b"", lambda b: b + b]
)
def test_bytes_that_are_not_one_batch_are_corrupt(harness, damage):
    with pytest.raises(CorruptMessage):
        harness.fresh().append(damage(batch(1)), leader_epoch=0)


def test_a_flipped_bit_is_corrupt(harness):
    sent = bytearray(batch(1))
    sent[-1] ^= 1
    with pytest.raises(CorruptMessage):
        harness.fresh().append(sent, leader_epoch=0)


def test_size_limits(harness):
    log = harness.fresh()
    size_bytes = len(batch(1))
    log.config = LogConfig(max_message_bytes=size_bytes - 1)
    with pytest.raises(MessageTooLarge):
        append(log)
    log.config = LogConfig(segment_bytes=size_bytes - 1)
    with pytest.raises(RecordListTooLarge):
        append(log)
    log.config = LogConfig(segment_bytes=size_bytes, max_message_bytes=size_bytes)
    assert append(log).base_offset == 0


def test_log_append_time_is_stamped_into_the_header(harness):
    harness.config = LogConfig(message_timestamp_type="LogAppendTime")
    log = harness.fresh()
    appended = append(log, 2, timestamp_ms=5)
    stored = log.read(0, 1000, until_offset=2).region.read()
    header = check_batch(stored)
    assert appended.log_append_time_ms == header.max_timestamp == harness.clock.wall_ms()
    assert header.is_log_append_time
    assert append(log, timestamp_ms=harness.clock.wall_ms() + 10**9).base_offset == 2


def test_timestamps_that_are_too_old_are_refused_record_by_record(harness):
    now_ms = harness.clock.wall_ms()
    harness.config = LogConfig(message_timestamp_before_max_ms=1000)
    log = harness.fresh()
    append(log, timestamp_ms=now_ms - 1000)
    old_in_the_middle = [r._replace(timestamp_ms=now_ms - 2000 * (r.offset == 1)) for r in records(3)]
    with pytest.raises(InvalidTimestamp):
        log.append(build_batch(old_in_the_middle, base_offset=0), leader_epoch=0)


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_its_own_compression_re_encodes(harness, name):
    harness.config = LogConfig(compression_type=name)
    log = harness.fresh()
    for codec in Codec:
        append(log, 3, value=b"abc" * 50, codec=codec)
    want = 0 if name == "uncompressed" else Codec[name]
    assert {h.codec_number for h in headers(log)} == {want}
    stored = log.read(0, 1 << 20, until_offset=1 << 40).region.read()
    first = stored[: check_batch(stored).size_bytes]
    assert [r.value for r in decode_records(first)] == [b"abc" * 50] * 3


def test_a_compacted_topic_wants_keys(harness):
    harness.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    log = harness.fresh()
    append(log)
    with pytest.raises(InvalidRecord):
        append(log, key=None)


def test_walking_records_finds_what_a_right_crc_hides(harness):
    lying = with_field(with_field(batch(2), 23, ">i", 2), 57, ">i", 3)
    log = harness.fresh()
    log.append(lying, leader_epoch=0)
    log.config = LogConfig(walk_records=True)
    with pytest.raises((InvalidRecord, CorruptMessage)):
        log.append(lying, leader_epoch=0)


def test_flush_messages_asks_for_a_flush(harness):
    harness.config = LogConfig(flush_messages=3)
    log = harness.fresh()
    assert not append(log, 2).must_flush
    assert append(log).must_flush
    log.flush()
    assert log.recovery_point == 3
    assert not append(log).must_flush


def test_replicated_batches_keep_offsets_and_epochs_and_a_cut_last_one_is_left_out(harness):
    log = harness.fresh()
    sent = batch(2, base_offset=10, leader_epoch=3) + batch(1, base_offset=15, leader_epoch=4)
    appended = log.append(sent + sent[:70], leader_epoch=9, origin=Origin.REPLICATION)
    assert (appended.base_offset, appended.last_offset, log.next_offset) == (10, 15, 16)
    assert [(h.base_offset, h.leader_epoch) for h in headers(log)] == [(10, 3), (15, 4)]
    assert log.epochs.entries == [(3, 10), (4, 15)]
    assert headers(log, 13)[0].base_offset == 15
    with pytest.raises(OffsetOutOfRange):
        log.append(sent, leader_epoch=9, origin=Origin.REPLICATION)


def test_coordinators_may_append_several_batches(harness):
    log = harness.fresh()
    appended = log.append(batch(2) + batch(3), leader_epoch=1, origin=Origin.COORDINATOR)
    assert (appended.base_offset, appended.last_offset) == (0, 4)
    assert [h.base_offset for h in headers(log)] == [0, 2]


@pytest.mark.parametrize("deltas", [(1, 2, 3), (0, 2, 3), (0, 0, 1), (0, 2, 1)])
def test_the_records_of_a_new_batch_are_numbered_without_gaps(harness, deltas):
    log = harness.fresh()
    log.config = LogConfig(walk_records=True)
    contents = [record._replace(offset=delta) for record, delta in zip(records(3), deltas, strict=True)]
    with pytest.raises(InvalidRecord):
        log.append(build_batch(contents, last_offset_delta=2), leader_epoch=0)
    assert log.next_offset == 0


def test_a_new_batch_ends_at_its_last_record(harness):
    log = harness.fresh()
    with pytest.raises(InvalidRecord):
        log.append(build_batch(records(3), last_offset_delta=3), leader_epoch=0)
    assert log.next_offset == 0
