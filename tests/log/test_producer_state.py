"""Producers of a partition: sequences, duplicates, epochs, expiry, transactions, the last stable offset, snapshots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_harness import LogHarness, append, batch

from headrace.log.control_marker import read_marker
from headrace.log.disk import Disk
from headrace.log.partition_log import AbortedTxn, Origin
from headrace.log.producer_state import MAX_SEQUENCE, KeptBatch, ProducerStates
from headrace.log.snapshots import decode_snapshot, delete_snapshots, encode_snapshot
from headrace.protocol.batch_building import build_batch, control_record
from headrace.protocol.errors import InvalidProducerEpoch, InvalidRecord, InvalidTxnState, OutOfOrderSequence
from headrace.protocol.record_body import ControlKind


def produce(log, sequence, count=1, *, epoch=0, producer_id=5, **fields):
    return append(log, count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def end(log, kind, *, producer_id=5, epoch=0, coordinator_epoch=3):
    marker = build_batch(
        [control_record(kind, coordinator_epoch, timestamp_ms=1_700_000_000_000)],
        base_offset=0, producer_id=producer_id, producer_epoch=epoch, is_transactional=True, is_control=True,
    )  # fmt: skip
    return log.append(marker, leader_epoch=0, origin=Origin.COORDINATOR)


def test_each_of_the_last_five_batches_is_known_again(harness):
    log = harness.fresh()
    for number in range(7):
        produce(log, number * 2, 2)
    for number in range(2, 7):
        again = produce(log, number * 2, 2)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, number * 2, number * 2 + 1)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 2, 2)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 12, 1)
    assert log.next_offset == 14


def test_the_last_batch_is_known_again_after_a_stop_and_all_five_after_a_kill(harness):
    log = harness.fresh()
    for number in range(4):
        produce(log, number)
    log = harness.reborn()
    assert [produce(log, number).base_offset for number in range(4)] == [0, 1, 2, 3]
    log = harness.restarted()
    assert produce(log, 3).is_duplicate
    with pytest.raises(OutOfOrderSequence):
        produce(log, 5)
    assert not produce(log, 4).is_duplicate


class CountingDisk(Disk):
    reads = 0

    def pread(self, *arguments):
        self.reads += 1
        return super().pread(*arguments)


def test_batches_without_a_producer_are_not_read_again(harness):
    """The first roll of a log writes a snapshot of its producers. To read a segment of a gigabyte takes seconds."""
    harness.disk = CountingDisk()
    log = harness.fresh()
    for _ in range(50):
        append(log)
    log.roll()
    assert harness.disk.reads == 0
    produce(log, 0)
    log = harness.restarted()
    append(log)
    log.roll()
    assert [(each.producer_id, each.last_sequence) for each in log.producers.active()] == [(5, 0)]


@given(st.lists(st.sampled_from(["plain", "produced", "looked at", "truncated", "rolled", "restarted", "killed"])))
def test_producers_are_those_of_the_files_whenever_they_are_loaded(tmp_path_factory, steps):
    harness = LogHarness(tmp_path_factory.mktemp("logs"))
    log, sequence = harness.fresh(), 0
    for step in steps:
        match step:
            case "plain":
                append(log)
            case "produced":
                produce(log, sequence)
                sequence += 1
            case "looked at":
                log.producers.active()
            case "truncated":
                log.truncate_to(max(0, log.next_offset - 1))
                states = log.producers.active()
                sequence = states[0].last_sequence + 1 if states else 0
            case "rolled":
                log.roll()
            case "restarted":
                log = harness.restarted()
            case "killed":
                log = harness.reborn()
    loaded = [(each.producer_id, each.last_sequence) for each in log.producers.active()]
    log.unload_producers()
    delete_snapshots(log.log_dir.disk, log.folder, above=-1)
    assert [(each.producer_id, each.last_sequence) for each in log.producers.active()] == loaded
    harness.kill()


def test_epochs(harness):
    log = harness.fresh()
    produce(log, 0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        produce(log, 1, epoch=2)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 1, epoch=4)
    produce(log, 0, epoch=4)
    assert produce(log, 0, epoch=4).is_duplicate
    produce(log, 1, epoch=4)


def test_an_unknown_producer_may_start_anywhere(harness):
    assert produce(harness.fresh(), 17).base_offset == 0


def test_sequences_wrap(harness):
    log = harness.fresh()
    produce(log, MAX_SEQUENCE - 1, 4)
    with pytest.raises(OutOfOrderSequence):
        produce(log, 3)
    produce(log, 2)
    assert produce(log, MAX_SEQUENCE - 1, 4).is_duplicate


def test_idle_producers_expire_but_not_with_a_transaction_open(harness):
    log = harness.fresh()
    produce(log, 0)
    produce(log, 0, producer_id=6, is_transactional=True)
    harness.clock.advance(86_400_000)
    log.expire_producers()
    assert [producer.producer_id for producer in log.producers.active()] == [6]
    assert produce(log, 9).base_offset == 2


def test_an_open_transaction_holds_the_last_stable_offset(harness):
    log = harness.fresh()
    produce(log, 0)
    produce(log, 0, 2, producer_id=6, is_transactional=True)
    produce(log, 0, 2, producer_id=7, is_transactional=True)
    assert (log.first_unstable_offset, log.last_stable_offset) == (1, 1)
    with pytest.raises(InvalidTxnState):
        produce(log, 2, producer_id=6)
    end(log, ControlKind.commit, producer_id=6)
    assert log.last_stable_offset == 1, "the marker is not below the high watermark yet"
    log.high_watermark = log.next_offset
    assert log.last_stable_offset == 3
    end(log, ControlKind.abort, producer_id=7)
    log.high_watermark = log.next_offset
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 7)
    active = {producer.producer_id: producer for producer in log.producers.active()}
    assert (active[7].coordinator_epoch, active[7].current_txn_start_offset) == (3, -1)


def test_aborted_transactions_are_listed_and_found_again_after_a_kill(harness):
    log = harness.fresh()
    produce(log, 0, 2, producer_id=6, is_transactional=True)
    produce(log, 0, 2, producer_id=7, is_transactional=True)
    end(log, ControlKind.abort, producer_id=7)
    log.roll()
    end(log, ControlKind.abort, producer_id=6)
    produce(log, 2, producer_id=6, is_transactional=True)
    expected = [AbortedTxn(7, 2, 4, 0), AbortedTxn(6, 0, 5, 6)]
    for reopen in (None, harness.restarted, harness.reborn):
        log = reopen() if reopen else log
        log.high_watermark = log.next_offset
        assert log.aborted_transactions(0, 7) == expected
        assert log.aborted_transactions(5, 7) == expected[1:]
        assert log.aborted_transactions(0, 2) == expected[1:]
        assert log.first_unstable_offset == 6


def test_a_marker_of_an_older_epoch_is_refused(harness):
    log = harness.fresh()
    produce(log, 0, epoch=4, is_transactional=True)
    with pytest.raises(InvalidProducerEpoch):
        end(log, ControlKind.commit, epoch=3)


def test_a_control_batch_without_a_marker(harness):
    with pytest.raises(InvalidRecord):
        read_marker(batch(1)[:62])


sent = st.tuples(
    st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, MAX_SEQUENCE), st.integers(0, 2**60), st.booleans()
)


@given(st.lists(sent))
def test_snapshots_round_trip(entries):
    states = ProducerStates()
    for producer_id, epoch, sequence, offset, is_transactional in entries:
        kept = KeptBatch(sequence, sequence, offset, offset, offset)
        states.note_batch(producer_id, epoch, kept, is_transactional)
    data = encode_snapshot(states)
    decoded = ProducerStates()
    decoded.restore(decode_snapshot(data))
    assert decoded.active() == states.active()
    for producer_id, producer in decoded.producers.items():
        assert producer.batches[-1] == states.producers[producer_id].batches[-1]
    assert decode_snapshot(data[:-1]) is None
    assert decode_snapshot(data[:-1] + bytes([data[-1] ^ 1])) is None


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(1, 3), st.integers(-1, 1)), max_size=40))
def test_whatever_a_producer_sends_what_is_kept_is_in_sequence(moves):
    """Each step sends a batch near the expected sequence and epoch: it is in order, or a duplicate, or rejected."""
    states, log, epoch, expected = ProducerStates(), [], 3, 0
    for slip, count, epoch_step in moves:
        first, sent_epoch = expected + slip, epoch + epoch_step
        if first < 0:
            continue
        last = first + count - 1
        try:
            duplicate = states.check(1, sent_epoch, first, last)
        except (OutOfOrderSequence, InvalidProducerEpoch):
            continue
        if duplicate is not None:
            assert duplicate in [kept for kept_epoch, kept in log[-5:] if kept_epoch == sent_epoch]
            continue
        kept = KeptBatch(first, last, len(log), len(log), 0)
        states.note_batch(1, sent_epoch, kept, False)
        if log and log[-1][0] == sent_epoch:
            assert first == log[-1][1].last_sequence + 1
        elif log:
            assert (first, sent_epoch > log[-1][0]) == (0, True)
        log.append((sent_epoch, kept))
        epoch, expected = sent_epoch, last + 1
