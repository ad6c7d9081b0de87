"""Batches come back, are split, expire and are dropped: order and memory are kept."""

from itertools import pairwise

import pytest
from accumulator_harness import NODE, AccumulatorHarness, filled, values

from headrace.client.producer.batch import ProducerBatch
from headrace.protocol.records import Codec, check_batch

# ----------------------------------------------------------------------------------------------- retries, sequences


def test_sequences_are_given_at_the_first_drain_and_kept_for_retries():
    harness = AccumulatorHarness(is_idempotent=True)
    first, second = filled(harness, 2)
    assert (first.base_sequence, second.base_sequence) == (0, 1)
    before = bytes(first.data)
    harness.retry(first)
    harness.clock.advance(100)
    assert harness.drain_one() is first
    assert first.data == before


def test_batches_that_come_back_in_any_order_are_sent_again_by_sequence():
    harness = AccumulatorHarness(is_idempotent=True)
    batches = filled(harness, 3)
    harness.append(b"new")
    for at in (1, 2, 0):
        harness.retry(batches[at])
    harness.clock.advance(100)
    for batch in batches[:2]:
        assert harness.drain_one() is batch
        assert harness.drain() == []
        assert not harness.is_ready
        harness.accumulator.completion.complete(batch)
    assert harness.drain_one() is batches[2]
    assert harness.drain_one().base_sequence == 3


def test_the_next_leader_gets_nothing_new_while_the_last_one_has_batches():
    """It may have no record of this producer, and would take whatever comes first for the beginning."""
    harness = AccumulatorHarness(is_idempotent=True)
    first, second = filled(harness, 2)
    for batch in (first, second):
        batch.sent_to_node = NODE + 1
    harness.append(b"new")
    harness.clock.advance(100)
    assert not harness.is_ready
    assert harness.drain() == []
    harness.retry(first)
    harness.clock.advance(100)
    assert harness.drain_one() is first, "what comes back first goes to the next leader"
    assert harness.drain() == [], "but the second may still be with the last one"
    harness.accumulator.completion.complete(first)
    harness.accumulator.completion.complete(second)
    assert harness.is_ready
    assert harness.drain_one().base_sequence == 2


def test_a_retry_waits_for_the_batches_before_it():
    harness = AccumulatorHarness(is_idempotent=True)
    first, second = filled(harness, 2)
    harness.retry(second)
    harness.clock.advance(100)
    assert not harness.is_ready
    harness.accumulator.completion.complete(first)
    assert harness.is_ready
    assert harness.drain_one() is second


def test_sequences_wrap():
    harness = AccumulatorHarness(is_idempotent=True)
    harness.append()
    harness.number_from(2**31 - 1)
    first = harness.drain_one()
    harness.append()
    second = harness.drain_one()
    assert (first.base_sequence, second.base_sequence) == (2**31 - 1, 0)
    harness.retry(second)
    harness.retry(first)
    harness.clock.advance(100)
    assert harness.drain_one() is first


def test_a_new_epoch_numbers_anew_what_is_sent_again():
    harness = AccumulatorHarness(is_idempotent=True)
    first, second = filled(harness, 2)
    harness.accumulator.completion.complete(first)
    harness.retry(second)
    harness.accumulator.epochs.set_producer(5, 1)
    harness.clock.advance(100)
    header = check_batch(harness.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_without_sequences_a_batch_goes_back_to_the_front():
    harness = AccumulatorHarness()
    (first,) = filled(harness, 1)
    harness.append(b"later")
    harness.retry(first)
    harness.clock.advance(100)
    assert harness.drain_one() is first
    assert values(harness.drain_one()) == [b"later"]


# ------------------------------------------------------------------------------------------------------------ splits


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip])
def test_a_batch_found_too_large_comes_back_in_parts(is_idempotent, codec):
    harness = AccumulatorHarness(is_idempotent=is_idempotent, codec=codec, batch_size_bytes=1000)
    for number in range(8):
        harness.append(b"%d" % number * 100, on_delivery=number)
    whole = harness.drain_one()
    harness.append(b"later")
    parts = harness.accumulator.completion.split(whole)
    assert len(parts) >= 2
    harness.accumulator.unfinished.begin_flush()
    found, callbacks, sequences = [], [], []
    while batches := harness.drain():
        callbacks += [callback for _, callback in batches[0].callbacks]
        found += values(batches[0])
        sequences.append((batches[0].base_sequence, batches[0].record_count))
        harness.accumulator.completion.complete(batches[0])
    assert found == [*(b"%d" % number * 100 for number in range(8)), b"later"]
    assert callbacks == list(range(8))
    assert harness.pool.available_bytes == harness.pool.total_bytes
    assert harness.accumulator.unfinished.is_flushed(harness.accumulator.unfinished.last_number)
    if is_idempotent:
        assert all(base + count == after for (base, count), (after, _) in pairwise(sequences))


def test_a_single_record_is_not_split():
    batch = ProducerBatch("t", 0, limit_bytes=100, reserved_bytes=0, created_ms=0, number=1)
    batch.append(0, None, b"x", (), None)
    batch.seal()
    with pytest.raises(AssertionError):
        batch.split()


# -------------------------------------------------------------------------------------------------- expiry, aborting


def test_a_waiting_batch_expires_at_its_delivery_timeout():
    harness = AccumulatorHarness()
    batch = harness.append()
    assert harness.accumulator.completion.next_expiry_ms() == 1000
    harness.clock.advance(999)
    assert harness.expire() == []
    harness.clock.advance(1)
    assert harness.expire() == [batch]
    assert harness.pool.available_bytes == harness.pool.total_bytes
    assert not harness.is_ready


def test_a_batch_with_the_broker_expires_once_and_keeps_its_memory_until_it_is_answered():
    harness = AccumulatorHarness()
    harness.append()
    batch = harness.drain_one()
    harness.clock.advance(1000)
    assert harness.expire() == [batch]
    assert harness.expire() == []
    assert harness.pool.available_bytes < harness.pool.total_bytes
    harness.accumulator.completion.complete(batch)
    assert harness.pool.available_bytes == harness.pool.total_bytes


def test_a_numbered_batch_that_was_given_up_begins_a_new_epoch():
    harness = AccumulatorHarness(is_idempotent=True, linger_ms=0)
    (batch,) = filled(harness, 1)
    harness.retry(batch)
    harness.clock.advance(1000)
    assert harness.expire() == [batch]
    harness.append()
    header = check_batch(harness.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_while_one_given_up_may_still_be_answered_nothing_new_is_numbered():
    harness = AccumulatorHarness(is_idempotent=True, linger_ms=0)
    (late,) = filled(harness, 1)
    harness.clock.advance(1000)
    assert harness.expire() == [late]
    harness.append()
    assert not harness.is_ready
    harness.accumulator.completion.complete(late)
    assert harness.is_ready
    header = check_batch(harness.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (0, 1)


def test_what_the_broker_refused_for_its_number_is_numbered_anew_and_no_other_partition_is():
    harness = AccumulatorHarness(is_idempotent=True, linger_ms=0)
    harness.append(b"0", 0)
    harness.append(b"1", 1)
    refused, unknown = harness.drain(partitions=(0, 1))
    harness.retry(unknown)
    assert harness.accumulator.completion.is_first_in_flight(refused)
    harness.accumulator.epochs.bump_epoch(harness.accumulator.queues["t", 0])
    assert not harness.is_ready
    harness.retry(refused)
    harness.clock.advance(100)
    harness.append(b"2", 1)
    found = {batch.partition: check_batch(batch.data) for batch in harness.drain(partitions=(0, 1))}
    assert (found[0].producer_epoch, found[0].base_sequence) == (1, 0)
    assert (found[1].producer_epoch, found[1].base_sequence) == (0, 0)
    assert harness.drain(partitions=(0, 1)) == []
    harness.accumulator.completion.complete(unknown)
    header = check_batch(harness.drain(partitions=(0, 1))[0].data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_after_the_last_epoch_another_producer_id_is_needed():
    harness = AccumulatorHarness(is_idempotent=True, linger_ms=0)
    harness.accumulator.epochs.set_producer(5, 2**15 - 1)
    (batch,) = filled(harness, 1)
    harness.accumulator.epochs.bump_epoch(harness.accumulator.queues["t", 0])
    assert not harness.accumulator.epochs.needs_producer_id
    harness.retry(batch)
    assert harness.accumulator.epochs.needs_producer_id
    assert not harness.is_ready


def test_abort_drops_all_batches_that_wait():
    harness = AccumulatorHarness(is_idempotent=True)
    (sent,) = filled(harness, 1)
    unsent = harness.append()
    harness.retry(sent)
    assert harness.accumulator.completion.abort() == [sent, unsent]
    assert harness.pool.available_bytes == harness.pool.total_bytes


def test_queue_lengths_make_the_load_table():
    harness = AccumulatorHarness()
    for partition, batches in ((0, 0), (1, 3), (2, 1)):
        for _ in range(batches):
            harness.append(b"x" * 300, partition)
    table = harness.accumulator.load_of("t", range(3))
    assert table is not None
    assert table.frequencies == (4, 5, 8)
