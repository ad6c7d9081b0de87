"""Records wait, become ready and are drained: in order, and within their memory."""

import pytest
from accumulator_harness import AccumulatorHarness
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.buffer_pool import LargerThanPool
from headrace.client.producer.record import ProducerRecord
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import Codec, check_batch

# ------------------------------------------------------------------------------------------------- ready conditions


def test_not_ready_while_empty():
    ready = AccumulatorHarness().ready()
    assert ready.nodes == set()
    assert ready.next_check_delay_ms is None


def test_ready_when_full():
    harness = AccumulatorHarness()
    harness.append(b"x" * 100)
    assert not harness.is_ready
    harness.append(b"x" * 200)
    assert harness.is_ready


def test_ready_when_full_by_one_record_larger_than_batch_size():
    harness = AccumulatorHarness()
    harness.append(b"x" * 1000)
    assert harness.is_ready


def test_ready_when_lingered():
    harness = AccumulatorHarness()
    harness.append()
    harness.clock.advance(9)
    assert not harness.is_ready
    assert harness.ready().next_check_delay_ms == 1
    harness.clock.advance(1)
    assert harness.is_ready


def test_ready_at_once_without_linger():
    harness = AccumulatorHarness(linger_ms=0)
    harness.append()
    assert harness.is_ready


def test_ready_when_memory_is_exhausted():
    harness = AccumulatorHarness(memory_bytes=300)
    harness.append()
    assert harness.append(partition=1) is None
    assert not harness.is_ready
    harness.pool.wait(300, lambda wait: None)
    assert harness.is_ready


def test_ready_when_closed():
    harness = AccumulatorHarness()
    harness.append()
    harness.accumulator.is_closed = True
    assert harness.is_ready


def test_ready_when_flushing():
    harness = AccumulatorHarness()
    harness.append()
    mark = harness.accumulator.unfinished.begin_flush()
    assert harness.is_ready
    assert not harness.accumulator.unfinished.is_flushed(mark)
    batch = harness.drain_one()
    harness.append()
    harness.accumulator.completion.complete(batch)
    assert harness.accumulator.unfinished.is_flushed(mark)
    harness.accumulator.unfinished.end_flush()
    assert not harness.is_ready


def test_ready_when_a_transaction_completes():
    harness = AccumulatorHarness()
    harness.append()
    harness.accumulator.is_transaction_completing = True
    assert harness.is_ready


def test_not_ready_while_backing_off_not_even_when_closed():
    harness = AccumulatorHarness(linger_ms=0)
    harness.append()
    harness.retry(harness.drain_one())
    harness.accumulator.is_closed = True
    harness.clock.advance(99)
    assert not harness.is_ready
    assert harness.ready().next_check_delay_ms == 1
    assert harness.drain() == []
    harness.clock.advance(1)
    assert harness.is_ready


def test_backoff_doubles():
    harness = AccumulatorHarness(linger_ms=0)
    harness.append()
    for delay_ms in (100, 200, 400):
        harness.retry(harness.drain_one())
        assert harness.ready().next_check_delay_ms == delay_ms
        harness.clock.advance(delay_ms)
        assert harness.is_ready


def test_not_ready_while_muted():
    harness = AccumulatorHarness(linger_ms=0)
    harness.append()
    harness.accumulator.mute("t", 0)
    assert not harness.is_ready
    assert harness.drain() == []
    harness.accumulator.unmute("t", 0)
    assert harness.is_ready


def test_not_ready_while_the_leader_is_unknown():
    harness = AccumulatorHarness(linger_ms=0)
    harness.append()
    harness.leader = None
    ready = harness.ready()
    assert ready.nodes == set()
    assert ready.unknown_leader_topics == {"t"}


def test_not_ready_before_an_idempotent_producer_has_its_id():
    harness = AccumulatorHarness(linger_ms=0, is_idempotent=True)
    harness.accumulator.epochs.set_producer(-1, -1)
    harness.append()
    assert not harness.is_ready
    harness.accumulator.epochs.set_producer(5, 0)
    assert harness.is_ready


# ---------------------------------------------------------------------------------------------------- filling, memory


def test_records_share_a_batch_until_it_is_full():
    harness = AccumulatorHarness()
    first = harness.append(b"a" * 100, on_delivery="one")
    assert harness.append(b"b" * 100) is first
    second = harness.append(b"c" * 100, on_delivery="two")
    assert second is not first
    assert (first.callbacks, second.callbacks) == ([(0, "one")], [(0, "two")])
    assert first.record_count == 2


def test_memory_is_taken_a_batch_at_a_time_and_given_back():
    harness = AccumulatorHarness(memory_bytes=1000)
    harness.append()
    harness.append()
    assert harness.pool.available_bytes == 700
    harness.accumulator.completion.complete(harness.drain_one())
    assert harness.pool.available_bytes == 1000
    assert not harness.accumulator.unfinished


def test_memory_waited_for_goes_back_if_there_is_room_by_then():
    harness = AccumulatorHarness(memory_bytes=600)
    harness.append()
    assert harness.pool.try_reserve(300)
    record = ProducerRecord("t", 0, None, b"v", (), 0, None)
    assert harness.accumulator.append(record, 0, 0, reserved_bytes=300).record_count == 2
    assert harness.pool.available_bytes == 300


def test_a_record_larger_than_all_memory_is_refused():
    harness = AccumulatorHarness(memory_bytes=600)
    with pytest.raises(LargerThanPool):
        harness.append(b"x" * 1000)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
records = st.tuples(
    st.integers(-(10**6), 2**40),
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=400) | st.just(b"z" * 9000),
    st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=30), st.sampled_from(Codec), st.integers(0, 2**31 - 1))
def test_batches_decode_to_what_was_appended(rows, codec, sequence):
    harness = AccumulatorHarness(codec=codec, is_idempotent=True, linger_ms=0)
    for timestamp_ms, key, value, headers in rows:
        harness.accumulator.append(ProducerRecord("t", 0, key, value, headers, timestamp_ms, None), 0, 0)
    harness.number_from(sequence)
    found = []
    while batches := harness.drain():
        header = check_batch(batches[0].data)
        assert header.base_sequence == (sequence + len(found)) % 2**31
        assert (header.producer_id, header.producer_epoch, header.codec_number) == (5, 0, codec)
        decoded = decode_records(batches[0].data)
        assert [record.offset for record in decoded] == list(range(header.record_count))
        assert header.max_timestamp == max(record.timestamp_ms for record in decoded)
        assert header.record_count == 1 or batches[0].reserved_bytes >= batches[0].used_bytes
        found += [tuple(record[1:]) for record in decoded]
    assert found == rows


# ------------------------------------------------------------------------------------------------------------ drains


def test_drain_takes_a_batch_a_partition_up_to_the_request_size_and_goes_on_where_it_stopped():
    harness = AccumulatorHarness()
    for partition in range(3):
        harness.append(b"x" * 100, partition)
        harness.append(b"y" * 200, partition)
    first = harness.drain(partitions=(0, 1, 2), max_request_bytes=400)
    assert [batch.partition for batch in first] == [0, 1]
    second = harness.drain(partitions=(0, 1, 2), max_request_bytes=400)
    assert [batch.partition for batch in second] == [2]


def test_a_batch_larger_than_the_request_goes_alone():
    harness = AccumulatorHarness()
    harness.append(b"x" * 1000)
    assert len(harness.drain(max_request_bytes=100)) == 1


def test_a_drained_batch_takes_no_more_records_even_when_it_is_back():
    harness = AccumulatorHarness()
    batch = harness.append()
    assert harness.drain_one() is batch
    harness.retry(batch)
    assert harness.append() is not batch
