"""Compaction: what stays of a log, what a reader of it sees, and what a crash leaves."""

import errno
from dataclasses import replace

import pytest
from compacted_store import COMPACTED, DAY_MS, Store, committed_view, transaction

from headrace.log.compaction.cleaner import CLEANED_OFFSETS, CleanerConfig, CleaningStopped
from headrace.log.config import LogConfig
from headrace.protocol.batch_building import build_batch
from headrace.protocol.errors import KafkaError
from headrace.protocol.record_body import ControlKind, Record
from headrace.protocol.records import Codec, iter_headers
from headrace.testing.faulty_disk import FaultyDisk


@pytest.fixture
def stores(tmp_path):
    made = []

    def make(*args, **kwargs):
        store = Store(tmp_path, *args, **kwargs)
        made.append(store)
        return store

    yield make
    for store in made:
        store.manager.close()


@pytest.fixture
def store(stores):
    return stores()


# --------------------------------------------------------------------------------------------------------- what stays


def test_each_key_keeps_its_last_value(store):
    for number in range(50):
        store.put((b"k%d" % (number % 5), b"v%d" % number))
    cleaned = store.clean()
    assert store.offsets() == [45, 46, 47, 48, 49]
    assert store.view() == {b"k%d" % at: b"v%d" % (45 + at) for at in range(5)}
    assert cleaned.written_bytes < cleaned.read_bytes
    assert store.log.size_bytes == sum(segment.size_bytes for segment in store.log.segments)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_leave_a_batch_and_the_rest_keeps_its_offsets(store, codec):
    store.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), codec=codec)
    store.put((b"c", b"2"), codec=codec)
    store.clean()
    (first, _), (second, _) = store.batches()
    assert (first.base_offset, first.last_offset, first.record_count, first.codec_number) == (0, 3, 2, codec)
    assert second.base_offset == 4
    assert [(record.offset, record.key, record.value) for record in store.records()] == [
        (1, b"b", b"1"), (2, b"a", b"2"), (4, b"c", b"2"),
    ]  # fmt: skip


def test_a_read_of_a_removed_offset_lands_on_the_next_one(store):
    for number in range(60):
        store.put((b"same", b"v%d" % number) if number % 20 else (b"k%d" % number, b"kept"))
    store.clean()
    kept = store.offsets()
    assert kept == [0, 20, 40, 59]
    for reopened in (False, True):
        if reopened:
            store.reopen()
        for offset in range(60):
            region = store.log.read(offset, 1, until_offset=60).region
            _, header = next(iter_headers(region.read()))
            assert header.last_offset == min(at for at in kept if at >= offset)


def test_the_active_segment_is_left_alone(store):
    store.put((b"a", b"1"))
    store.log.roll()
    store.put((b"a", b"2"))
    store.put((b"a", b"3"))
    store.clean_closed()
    assert store.offsets() == [0, 1, 2], "what is not in a closed segment supersedes nothing yet"


def test_nothing_at_or_above_the_high_watermark_is_touched(store):
    for number in range(10):
        store.put((b"a", b"%d" % number))
    store.log.roll()
    store.log.high_watermark = 4
    store.clean_closed()
    assert store.offsets() == [3, 4, 5, 6, 7, 8, 9]


def test_segments_are_joined_up_to_segment_bytes(store):
    for number in range(200):
        store.put((b"k%d" % (number % 7), b"v" * 50))
    before = len(store.log.segments)
    store.clean()
    assert before > 10
    assert len(store.log.segments) < before
    assert all(segment.size_bytes <= 1000 for segment in store.log.segments)
    for _ in range(4):
        store.put((b"k0", b"v"))
        store.clean()
    assert len(store.log.segments) <= 3


def test_records_without_a_key_go(stores):
    store = stores(LogConfig(segment_bytes=1000))
    store.put((None, b"1"), (b"k", b"1"))
    store.put((None, b"2"))
    store.log.config = COMPACTED
    store.clean()
    assert store.offsets() == [1]


def test_long_keys_are_told_apart(store):
    store.put((b"x" * 40 + b"1", b"a"), (b"x" * 40 + b"2", b"b"), (b"x" * 40 + b"1", b"c"))
    store.put((b"y", b""))
    store.clean()
    assert store.offsets() == [1, 2, 3]


# --------------------------------------------------------------------------------------------------------- tombstones


def test_a_tombstone_goes_after_delete_retention(store):
    store.put((b"a", b"1"))
    store.put((b"a", None))
    store.put((b"b", b"1"))
    store.clean()
    assert store.offsets() == [1, 2], "the tombstone stays, so that readers learn of it"
    horizon_ms = store.clock.wall_ms() + DAY_MS
    (tombstone, _), _ = store.batches()
    assert tombstone.has_delete_horizon
    assert tombstone.base_timestamp == horizon_ms
    assert store.records()[0].timestamp_ms == horizon_ms - DAY_MS

    store.clock.advance(DAY_MS - 1)
    store.put((b"c", b"1"))
    store.clean()
    assert store.offsets() == [1, 2, 3]

    store.clock.advance(1)
    store.put((b"c", b"2"))
    store.clean()
    assert store.offsets() == [2, 4]


def test_the_horizon_is_set_once(store):
    store.put((b"a", None))
    store.clean()
    (first, _), *_ = store.batches()
    store.clock.advance(1000)
    store.put((b"b", b"1"))
    store.clean()
    (second, _), *_ = store.batches()
    assert first.base_timestamp == second.base_timestamp


# ------------------------------------------------------------------------------------------------------- when to clean


def test_a_log_is_due_above_its_dirty_ratio(stores):
    store = stores(replace(COMPACTED, min_cleanable_dirty_ratio=0.5))
    for number in range(100):
        store.put((b"k%d" % number, b"v" * 50))
    store.log.roll()
    assert store.cleaner.next_to_clean([store.log]) is store.log
    store.clean_closed()
    assert store.cleaner.next_to_clean([store.log]) is None
    for number in range(90):
        store.put((b"k%d" % number, b"v" * 50))
    store.log.roll()
    assert store.cleaner.dirty_range(store.log).ratio < 0.5
    assert store.cleaner.next_to_clean([store.log]) is None
    for number in range(30):
        store.put((b"k%d" % number, b"v" * 50))
    store.log.roll()
    assert store.cleaner.next_to_clean([store.log]) is store.log


def test_the_dirtiest_log_is_next(store):
    other = store.manager.create("other", 0, None)
    store.put((b"a", b"1"))
    store.clean()
    store.put((b"a", b"2"))
    other.append(build_batch([Record(0, store.clock.wall_ms(), b"k", b"v")]), leader_epoch=0)
    other.high_watermark = 1
    other.roll()
    store.log.roll()
    assert store.cleaner.next_to_clean([store.log, other]) is other
    assert store.cleaner.plan(other) is not None
    assert store.cleaner.next_to_clean([store.log, other]) is store.log, "the other is under way"


def test_a_log_that_is_not_compacted_is_never_due(stores):
    store = stores(LogConfig())
    store.put((b"a", b"1"))
    store.log.roll()
    assert store.cleaner.next_to_clean([store.log]) is None


def test_young_segments_wait_for_the_min_lag(stores):
    store = stores(replace(COMPACTED, min_compaction_lag_ms=10_000))
    store.put((b"a", b"1"))
    store.put((b"a", b"2"))
    store.log.roll()
    store.clock.advance(5_000)
    store.put((b"a", b"3"))
    store.log.roll()
    assert store.clean_closed() is None
    store.clock.advance(5_000)
    store.clean_closed()
    assert store.offsets() == [1, 2]
    store.clock.advance(5_000)
    store.clean_closed()
    assert store.offsets() == [2]


def test_the_max_lag_makes_a_log_due(stores):
    store = stores(replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000))
    store.put((b"a", b"1"))
    store.log.roll()
    store.clock.advance(10_000)
    assert store.cleaner.next_to_clean([store.log]) is None
    store.clock.advance(1)
    assert store.cleaner.next_to_clean([store.log]) is store.log


def test_the_first_dirty_offset_survives_a_restart(store):
    for number in range(10):
        store.put((b"a", b"%d" % number))
    store.clean()
    assert (store.folder / CLEANED_OFFSETS).read_text() == "0\n1\nt 0 10\n"
    store.reopen()
    assert store.cleaner.dirty_range(store.log).first_dirty_offset == 10
    store.cleaner.forget(store.log)
    assert (store.folder / CLEANED_OFFSETS).read_text() == "0\n0\n"


def test_a_log_cut_below_what_was_cleaned_is_dirty_from_its_start(store):
    for number in range(10):
        store.put((b"k%d" % number, b""))
    store.clean()
    store.log.truncate_to(5)
    assert store.cleaner.dirty_range(store.log).first_dirty_offset == store.log.log_start_offset


def test_a_small_map_cleans_in_several_rounds(stores):
    store = stores(cleaner_config=CleanerConfig(dedupe_buffer_bytes=192 * 10))
    for number in range(100):
        store.put((b"k%d" % (number % 30), b"%d" % number))
    store.log.roll()
    ends = []
    while (cleaned := store.clean_closed()) is not None:
        assert cleaned.key_count == 10
        ends.append(cleaned.end_offset)
    assert ends == list(range(10, 101, 10))
    assert store.view() == {b"k%d" % (at % 30): b"%d" % at for at in range(70, 100)}
    assert store.offsets() == list(range(70, 100))


# ------------------------------------------------------------------------------------------ producers and transactions


def test_the_last_sequence_of_a_producer_stays_as_an_empty_batch(store):
    producer = {"producer_id": 7, "producer_epoch": 0}
    store.put((b"a", b"1"), base_sequence=0, **producer)
    store.put((b"a", b"2"), base_sequence=1, **producer)
    store.put((b"a", b"3"))
    store.clean()
    (empty, _), (last, _) = store.batches()
    assert (empty.base_offset, empty.record_count, empty.last_sequence) == (1, 0, 1)
    assert last.base_offset == 2
    store.reopen()
    duplicate = store.log.append(
        build_batch([Record(0, store.clock.wall_ms(), b"a", b"2")], base_sequence=1, **producer), leader_epoch=0
    )
    assert duplicate.is_duplicate


def test_an_empty_batch_goes_when_its_producer_is_forgotten(store):
    store.put((b"a", b"1"), base_sequence=0, producer_id=7, producer_epoch=0)
    store.put((b"a", b"2"))
    store.clean()
    assert len(store.batches()) == 2
    store.clock.advance(DAY_MS + 1)
    store.log.expire_producers()
    store.put((b"b", b"1"))
    store.clean()
    assert [header.base_offset for header, _ in store.batches()] == [1, 2]


def test_aborted_records_go_and_supersede_nothing(store):
    store.put((b"a", b"1"))
    transaction(store, ControlKind.abort, (b"a", b"2"), (b"b", b"2"))
    transaction(store, ControlKind.commit, (b"c", b"3"), sequence=2)
    store.put((b"d", b"4"))
    store.clean()
    assert store.view() == {b"a": b"1", b"c": b"3", b"d": b"4"}
    assert [header.base_offset for header, _ in store.batches() if header.is_control] == [3, 5]
    assert [txn.first_offset for txn in store.log.aborted_transactions(0, 10)] == [1]


def test_a_marker_goes_once_its_transaction_is_gone_and_its_horizon_past(store):
    transaction(store, ControlKind.abort, (b"a", b"1"))
    transaction(store, ControlKind.commit, (b"b", b"2"), sequence=1)
    transaction(store, ControlKind.commit, (b"b", b"3"), sequence=2)

    def markers():
        return [(h.base_offset, h.has_delete_horizon) for h, _ in store.batches() if h.is_control]

    store.clean()
    assert markers() == [(1, False), (3, False), (5, False)], "data before each was met in this round"
    store.put((b"x", b"1"))
    store.clean()
    assert markers() == [(1, True), (3, True), (5, False)]
    assert store.log.aborted_transactions(0, 10) == []
    store.clock.advance(DAY_MS)
    store.put((b"x", b"2"))
    store.clean()
    assert markers() == [(5, False)]
    assert store.view() == {b"b": b"3", b"x": b"2"}


def test_the_epoch_of_a_producer_that_only_left_a_marker_stays_as_an_empty_batch(stores):
    store = stores(replace(COMPACTED, delete_retention_ms=1000))
    transaction(store, None, (b"a", b"1"))
    store.end_transaction(ControlKind.abort, 9, epoch=1)
    for _ in range(3):
        store.put((b"x", b"1"))
        store.clean()
        store.clock.advance(1000)
    (marker, _), *_ = store.batches()
    assert marker.is_control
    assert (marker.base_offset, marker.record_count, marker.producer_epoch) == (1, 0, 1)
    store.manager.close()
    for snapshot in store.log.directory.glob("*.snapshot"):
        snapshot.unlink()
    store.open()
    assert committed_view(store) == {b"x": b"1"}
    assert store.log.producers.first_open_offset() is None


def test_an_open_transaction_is_not_touched(store):
    store.put((b"a", b"1"))
    store.put((b"a", b"2"))
    transaction(store, None, (b"a", b"3"))
    store.put((b"a", b"4"))
    store.log.roll()
    store.clean_closed()
    assert store.offsets() == [1, 2, 3]
    store.end_transaction(ControlKind.abort, 9)
    store.clean()
    assert store.offsets() == [3]


def test_a_transaction_whose_marker_is_in_the_active_segment(store):
    store.put((b"a", b"1"))
    transaction(store, None, (b"a", b"2"))
    store.log.roll()
    store.end_transaction(ControlKind.abort, 9)
    store.clean_closed()
    assert store.view() == {b"a": b"1"}


# ------------------------------------------------------------------------------------------------ meanwhile, and after


def test_segments_removed_while_they_were_cleaned_stay_removed(store):
    for number in range(60):
        store.put((b"k%d" % (number % 3), b"v" * 50))
    store.log.roll()
    plan = store.cleaner.plan(store.log)
    cleaned = store.cleaner.build(plan)
    store.log.advance_log_start(45)
    store.cleaner.commit(store.log, cleaned)
    assert store.log.log_start_offset == 45
    assert len(store.view()) == 3
    assert not list(store.log.directory.glob("*.cleaned"))


def test_a_reader_of_an_old_segment_is_not_disturbed(store):
    for number in range(10):
        store.put((b"a", b"%d" % number))
    region = store.log.read(0, 10_000, until_offset=10).region
    before = region.read()
    store.clean()
    store.clock.advance(DAY_MS)
    store.manager.remove_deleted()
    assert region.read() == before


def test_appends_go_on_while_segments_are_built(store):
    for number in range(20):
        store.put((b"a", b"%d" % number))
    store.log.roll()
    plan = store.cleaner.plan(store.log)
    store.put((b"a", b"new"))
    cleaned = store.cleaner.build(plan)
    store.put((b"a", b"newer"))
    store.cleaner.commit(store.log, cleaned)
    assert store.offsets() == [19, 20, 21]


def test_building_can_be_stopped(store):
    store.put((b"a", b"1"))
    store.put((b"a", b"2"))
    store.log.roll()
    plan = store.cleaner.plan(store.log)
    with pytest.raises(CleaningStopped) as stopped:
        store.cleaner.build(plan, should_stop=lambda: True)
    store.cleaner.abort(store.log, stopped.value)
    assert not list(store.log.directory.glob("*.cleaned"))
    assert store.clean_closed() is not None


def test_a_log_that_cannot_be_read_is_left_alone(store):
    store.put((b"a", b"1" * 50))
    store.put((b"a", b"2" * 50))
    store.log.roll()
    with open(store.log.segments[0].path(), "r+b") as file:
        file.seek(80)
        file.write(b"!!!!")
    plan = store.cleaner.plan(store.log)
    with pytest.raises(KafkaError) as failure:
        store.cleaner.build(plan)
    store.cleaner.abort(store.log, failure.value)
    assert store.cleaner.next_to_clean([store.log]) is None
    assert not list(store.log.directory.glob("*.cleaned"))


def test_a_full_disk_takes_the_log_dir_offline_and_leaves_the_log(stores):
    disk = FaultyDisk()
    store = stores(disk=disk)
    for number in range(20):
        store.put((b"a", b"%d" % number))
    store.log.roll()
    disk.fail("write", ".cleaned", error_number=errno.ENOSPC, partial_bytes=10)
    plan = store.cleaner.plan(store.log)
    with pytest.raises(OSError) as failure:
        store.cleaner.build(plan)
    store.cleaner.abort(store.log, failure.value)
    assert store.log.log_dir.error is failure.value
    assert store.cleaner.next_to_clean([store.log]) is None
    assert not list(store.log.directory.glob("*.cleaned"))


def test_a_log_deleted_while_it_was_cleaned_stays_deleted(store):
    store.put((b"a", b"1"))
    store.put((b"a", b"2"))
    store.log.roll()
    plan = store.cleaner.plan(store.log)
    cleaned = store.cleaner.build(plan)
    store.manager.delete("t", 0)
    assert store.cleaner.commit(store.log, cleaned) == 0
    store.cleaner.forget(store.log)
    assert store.manager.create("t", 0, None).next_offset == 0


def test_a_log_deleted_before_it_was_read_stops_the_cleaning(store):
    store.put((b"a", b"1"))
    store.log.roll()
    plan = store.cleaner.plan(store.log)
    store.manager.delete("t", 0)
    with pytest.raises(CleaningStopped):
        store.cleaner.build(plan)


def test_an_idle_log_is_not_loaded(store):
    store.put((b"a", b"1"))
    store.clean()
    store.reopen()
    assert store.cleaner.next_to_clean([store.log]) is None
    assert store.log._producers is None


def test_reading_and_writing_keep_to_the_rate(stores):
    store = stores(cleaner_config=CleanerConfig(io_max_bytes_per_second=1000))
    for number in range(40):
        store.put((b"k%d" % number, b"v"))
    started_ms = store.clock.monotonic_ms()
    cleaned = store.clean()
    # Read once for the keys and once to copy, written once.
    moved_bytes = 2 * cleaned.read_bytes + cleaned.written_bytes
    assert store.clock.monotonic_ms() - started_ms == pytest.approx(moved_bytes, abs=len(store.slept_s) + 2)


def test_what_was_cleaned_is_the_same_after_a_restart(store):
    for number in range(100):
        store.put((b"k%d" % (number % 9), b"v%d" % number), (b"x", None))
    store.clean()
    before = [batch for _, batch in store.batches()]
    store.reopen()
    assert [batch for _, batch in store.batches()] == before
    assert store.log.next_offset == 200
    store.put((b"k1", b"new"))
    assert store.offsets()[-1] == 200


def test_times_are_found_in_a_cleaned_log(store):
    for number in range(100):
        store.put((b"k%d" % (number % 9), b"v%d" % number))
        store.clock.advance(10)
    start_ms = store.clock.wall_ms() - 1000
    store.clean()
    found = store.log.locate_time(start_ms, until_offset=100)
    assert (found.offset, found.timestamp_ms) == (91, start_ms + 910)
