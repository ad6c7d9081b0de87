"""Records wait, become ready and are drained: in order, and within their memory."""

import pytest
from accumulator_bench import Bench
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.buffer_pool import LargerThanPool
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import Codec, check_batch

# ------------------------------------------------------------------------------------------------- ready conditions


def test_not_ready_while_empty():
    ready = Bench().ready()
    assert ready.nodes == set()
    assert ready.next_check_delay_ms is None


def test_ready_when_full():
    bench = Bench()
    bench.append(b"x" * 100)
    assert not bench.is_ready
    bench.append(b"x" * 200)
    assert bench.is_ready


def test_ready_when_full_by_one_record_larger_than_batch_size():
    bench = Bench()
    bench.append(b"x" * 1000)
    assert bench.is_ready


def test_ready_when_lingered():
    bench = Bench()
    bench.append()
    bench.clock.advance(9)
    assert not bench.is_ready
    assert bench.ready().next_check_delay_ms == 1
    bench.clock.advance(1)
    assert bench.is_ready


def test_ready_at_once_without_linger():
    bench = Bench(linger_ms=0)
    bench.append()
    assert bench.is_ready


def test_ready_when_memory_is_exhausted():
    bench = Bench(memory_bytes=300)
    bench.append()
    assert bench.append(partition=1) is None
    assert not bench.is_ready
    bench.pool.wait(300, 1000, lambda wait: None)
    assert bench.is_ready


def test_ready_when_closed():
    bench = Bench()
    bench.append()
    bench.accumulator.is_closed = True
    assert bench.is_ready


def test_ready_when_flushing():
    bench = Bench()
    bench.append()
    mark = bench.accumulator.begin_flush()
    assert bench.is_ready
    assert not bench.accumulator.is_flushed(mark)
    batch = bench.drain_one()
    bench.append()
    bench.accumulator.complete(batch)
    assert bench.accumulator.is_flushed(mark)
    bench.accumulator.end_flush()
    assert not bench.is_ready


def test_ready_when_a_transaction_completes():
    bench = Bench()
    bench.append()
    bench.accumulator.is_transaction_completing = True
    assert bench.is_ready


def test_not_ready_while_backing_off_not_even_when_closed():
    bench = Bench(linger_ms=0)
    bench.append()
    bench.retry(bench.drain_one())
    bench.accumulator.is_closed = True
    bench.clock.advance(99)
    assert not bench.is_ready
    assert bench.ready().next_check_delay_ms == 1
    assert bench.drain() == []
    bench.clock.advance(1)
    assert bench.is_ready


def test_backoff_doubles():
    bench = Bench(linger_ms=0)
    bench.append()
    for delay_ms in (100, 200, 400):
        bench.retry(bench.drain_one())
        assert bench.ready().next_check_delay_ms == delay_ms
        bench.clock.advance(delay_ms)
        assert bench.is_ready


def test_not_ready_while_muted():
    bench = Bench(linger_ms=0)
    bench.append()
    bench.accumulator.mute("t", 0)
    assert not bench.is_ready
    assert bench.drain() == []
    bench.accumulator.unmute("t", 0)
    assert bench.is_ready


def test_not_ready_while_the_leader_is_unknown():
    bench = Bench(linger_ms=0)
    bench.append()
    bench.leader = None
    ready = bench.ready()
    assert ready.nodes == set()
    assert ready.unknown_leader_topics == {"t"}


def test_not_ready_before_an_idempotent_producer_has_its_id():
    bench = Bench(linger_ms=0, is_idempotent=True)
    bench.accumulator.set_producer(-1, -1)
    bench.append()
    assert not bench.is_ready
    bench.accumulator.set_producer(5, 0)
    assert bench.is_ready


# ---------------------------------------------------------------------------------------------------- filling, memory


def test_records_share_a_batch_until_it_is_full():
    bench = Bench()
    first = bench.append(b"a" * 100, slot="one")
    assert bench.append(b"b" * 100) is first
    second = bench.append(b"c" * 100, slot="two")
    assert second is not first
    assert (first.slots, second.slots) == ([(0, "one")], [(0, "two")])
    assert first.record_count == 2


def test_memory_is_taken_a_batch_at_a_time_and_given_back():
    bench = Bench(memory_bytes=1000)
    bench.append()
    bench.append()
    assert bench.pool.available_bytes == 700
    bench.accumulator.complete(bench.drain_one())
    assert bench.pool.available_bytes == 1000
    assert not bench.accumulator.has_incomplete


def test_memory_waited_for_goes_back_if_there_is_room_by_then():
    bench = Bench(memory_bytes=600)
    bench.append()
    assert bench.pool.try_reserve(300)
    assert bench.accumulator.append("t", 0, None, b"v", (), 0, 0, reserved_bytes=300).record_count == 2
    assert bench.pool.available_bytes == 300


def test_a_record_larger_than_all_memory_is_refused():
    bench = Bench(memory_bytes=600)
    with pytest.raises(LargerThanPool):
        bench.append(b"x" * 1000)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
records = st.tuples(
    st.integers(-(10**6), 2**40),
    st.none() | st.binary(max_size=80),
    st.none() | st.binary(max_size=400) | st.just(b"z" * 9000),
    st.lists(st.tuples(texts, st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
)


@given(st.lists(records, min_size=1, max_size=30), st.sampled_from(Codec), st.integers(0, 2**31 - 1))
def test_batches_decode_to_what_was_appended(rows, codec, sequence):
    bench = Bench(codec=codec, is_idempotent=True, linger_ms=0)
    for timestamp_ms, key, value, headers in rows:
        bench.accumulator.append("t", 0, key, value, headers, timestamp_ms, 0)
    bench.number_from(sequence)
    found = []
    while batches := bench.drain():
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
    bench = Bench()
    for partition in range(3):
        bench.append(b"x" * 100, partition)
        bench.append(b"y" * 200, partition)
    first = bench.drain(partitions=(0, 1, 2), max_request_bytes=400)
    assert [batch.partition for batch in first] == [0, 1]
    second = bench.drain(partitions=(0, 1, 2), max_request_bytes=400)
    assert [batch.partition for batch in second] == [2]


def test_a_batch_larger_than_the_request_goes_alone():
    bench = Bench()
    bench.append(b"x" * 1000)
    assert len(bench.drain(max_request_bytes=100)) == 1


def test_a_drained_batch_takes_no_more_records_even_when_it_is_back():
    bench = Bench()
    batch = bench.append()
    assert bench.drain_one() is batch
    bench.retry(batch)
    assert bench.append() is not batch
