"""Batches come back, are split, expire and are dropped: order and memory are kept."""

from itertools import pairwise

import pytest
from accumulator_bench import NODE, Bench, filled, values

from headrace.client.producer_batch import ProducerBatch
from headrace.protocol.records import Codec, check_batch

# ----------------------------------------------------------------------------------------------- retries, sequences


def test_sequences_are_given_at_the_first_drain_and_kept_for_retries():
    bench = Bench(is_idempotent=True)
    first, second = filled(bench, 2)
    assert (first.base_sequence, second.base_sequence) == (0, 1)
    before = bytes(first.data)
    bench.retry(first)
    bench.clock.advance(100)
    assert bench.drain_one() is first
    assert first.data == before


def test_batches_that_come_back_in_any_order_are_sent_again_by_sequence():
    bench = Bench(is_idempotent=True)
    batches = filled(bench, 3)
    bench.append(b"new")
    for at in (1, 2, 0):
        bench.retry(batches[at])
    bench.clock.advance(100)
    for batch in batches[:2]:
        assert bench.drain_one() is batch
        assert bench.drain() == []
        assert not bench.is_ready
        bench.accumulator.complete(batch)
    assert bench.drain_one() is batches[2]
    assert bench.drain_one().base_sequence == 3


def test_the_next_leader_gets_nothing_new_while_the_last_one_has_batches():
    """It may have no record of this producer, and would take whatever comes first for the beginning."""
    bench = Bench(is_idempotent=True)
    first, second = filled(bench, 2)
    for batch in (first, second):
        batch.sent_to = NODE + 1
    bench.append(b"new")
    bench.clock.advance(100)
    assert not bench.is_ready
    assert bench.drain() == []
    bench.retry(first)
    bench.clock.advance(100)
    assert bench.drain_one() is first, "what comes back first goes to the next leader"
    assert bench.drain() == [], "but the second may still be with the last one"
    bench.accumulator.complete(first)
    bench.accumulator.complete(second)
    assert bench.is_ready
    assert bench.drain_one().base_sequence == 2


def test_a_retry_waits_for_the_batches_before_it():
    bench = Bench(is_idempotent=True)
    first, second = filled(bench, 2)
    bench.retry(second)
    bench.clock.advance(100)
    assert not bench.is_ready
    bench.accumulator.complete(first)
    assert bench.is_ready
    assert bench.drain_one() is second


def test_sequences_wrap():
    bench = Bench(is_idempotent=True)
    bench.append()
    bench.number_from(2**31 - 1)
    first = bench.drain_one()
    bench.append()
    second = bench.drain_one()
    assert (first.base_sequence, second.base_sequence) == (2**31 - 1, 0)
    bench.retry(second)
    bench.retry(first)
    bench.clock.advance(100)
    assert bench.drain_one() is first


def test_a_new_epoch_numbers_anew_what_is_sent_again():
    bench = Bench(is_idempotent=True)
    first, second = filled(bench, 2)
    bench.accumulator.complete(first)
    bench.retry(second)
    bench.accumulator.set_producer(5, 1)
    bench.clock.advance(100)
    header = check_batch(bench.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_without_sequences_a_batch_goes_back_to_the_front():
    bench = Bench()
    (first,) = filled(bench, 1)
    bench.append(b"later")
    bench.retry(first)
    bench.clock.advance(100)
    assert bench.drain_one() is first
    assert values(bench.drain_one()) == [b"later"]


# ------------------------------------------------------------------------------------------------------------ splits


@pytest.mark.parametrize("is_idempotent", [False, True])
@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip])
def test_a_batch_found_too_large_comes_back_in_parts(is_idempotent, codec):
    bench = Bench(is_idempotent=is_idempotent, codec=codec, batch_size_bytes=1000)
    for number in range(8):
        bench.append(b"%d" % number * 100, slot=number)
    whole = bench.drain_one()
    bench.append(b"later")
    parts = bench.accumulator.split(whole)
    assert len(parts) >= 2
    bench.accumulator.begin_flush()
    found, slots, sequences = [], [], []
    while batches := bench.drain():
        slots += [slot for _, slot in batches[0].slots]
        found += values(batches[0])
        sequences.append((batches[0].base_sequence, batches[0].record_count))
        bench.accumulator.complete(batches[0])
    assert found == [*(b"%d" % number * 100 for number in range(8)), b"later"]
    assert slots == list(range(8))
    assert bench.pool.available_bytes == bench.pool.total_bytes
    assert bench.accumulator.is_flushed(bench.accumulator.last_number)
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
    bench = Bench()
    batch = bench.append()
    assert bench.accumulator.next_expiry_ms() == 1000
    bench.clock.advance(999)
    assert bench.expire() == []
    bench.clock.advance(1)
    assert bench.expire() == [batch]
    assert bench.pool.available_bytes == bench.pool.total_bytes
    assert not bench.is_ready


def test_a_batch_with_the_broker_expires_once_and_keeps_its_memory_until_it_is_answered():
    bench = Bench()
    bench.append()
    batch = bench.drain_one()
    bench.clock.advance(1000)
    assert bench.expire() == [batch]
    assert bench.expire() == []
    assert bench.pool.available_bytes < bench.pool.total_bytes
    bench.accumulator.complete(batch)
    assert bench.pool.available_bytes == bench.pool.total_bytes


def test_a_numbered_batch_that_was_given_up_begins_a_new_epoch():
    bench = Bench(is_idempotent=True, linger_ms=0)
    (batch,) = filled(bench, 1)
    bench.retry(batch)
    bench.clock.advance(1000)
    assert bench.expire() == [batch]
    bench.append()
    header = check_batch(bench.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_while_one_given_up_may_still_be_answered_nothing_new_is_numbered():
    bench = Bench(is_idempotent=True, linger_ms=0)
    (late,) = filled(bench, 1)
    bench.clock.advance(1000)
    assert bench.expire() == [late]
    bench.append()
    assert not bench.is_ready
    bench.accumulator.complete(late)
    assert bench.is_ready
    header = check_batch(bench.drain_one().data)
    assert (header.producer_epoch, header.base_sequence) == (0, 1)


def test_what_the_broker_refused_for_its_number_is_numbered_anew_and_no_other_partition_is():
    bench = Bench(is_idempotent=True, linger_ms=0)
    bench.append(b"0", 0)
    bench.append(b"1", 1)
    refused, unknown = bench.drain(partitions=(0, 1))
    bench.retry(unknown)
    assert bench.accumulator.is_first_in_flight(refused)
    bench.accumulator.bump_epoch("t", 0)
    assert not bench.is_ready
    bench.retry(refused)
    bench.clock.advance(100)
    bench.append(b"2", 1)
    found = {batch.partition: check_batch(batch.data) for batch in bench.drain(partitions=(0, 1))}
    assert (found[0].producer_epoch, found[0].base_sequence) == (1, 0)
    assert (found[1].producer_epoch, found[1].base_sequence) == (0, 0)
    assert bench.drain(partitions=(0, 1)) == []
    bench.accumulator.complete(unknown)
    header = check_batch(bench.drain(partitions=(0, 1))[0].data)
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_after_the_last_epoch_another_producer_id_is_needed():
    bench = Bench(is_idempotent=True, linger_ms=0)
    bench.accumulator.set_producer(5, 2**15 - 1)
    (batch,) = filled(bench, 1)
    bench.accumulator.bump_epoch("t", 0)
    assert not bench.accumulator.needs_producer
    bench.retry(batch)
    assert bench.accumulator.needs_producer
    assert not bench.is_ready


def test_abort_drops_what_the_broker_never_saw_or_all():
    bench = Bench(is_idempotent=True)
    (sent,) = filled(bench, 1)
    unsent = bench.append()
    bench.retry(sent)
    assert bench.accumulator.abort(only_unsent=True) == [unsent]
    assert bench.accumulator.abort() == [sent]
    assert bench.pool.available_bytes == bench.pool.total_bytes


def test_queue_lengths_make_the_load_table():
    bench = Bench()
    for partition, batches in ((0, 0), (1, 3), (2, 1)):
        for _ in range(batches):
            bench.append(b"x" * 300, partition)
    table = bench.accumulator.load_of("t", range(3))
    assert table is not None
    assert table.frequencies == (4, 5, 8)
