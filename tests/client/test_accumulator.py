"""Records wait, become ready, are drained, come back, are split and expire: in order, and within their memory."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.accumulator import Accumulator, AccumulatorOptions
from headrace.client.buffer_pool import BufferPool, LargerThanPool
from headrace.client.producer_batch import ProducerBatch
from headrace.protocol.record_body import decode_records
from headrace.protocol.records import Codec, check_batch
from headrace.testing import ManualClock

NODE = 7


class Bench:
    """An accumulator whose partitions are all led by one node, on a clock of its own."""

    def __init__(self, *, memory_bytes=1_000_000, **options):
        defaults = {"batch_size_bytes": 300, "linger_ms": 10, "retry_backoff_ms": 100, "delivery_timeout_ms": 1000}
        self.clock = ManualClock()
        self.pool = BufferPool(memory_bytes)
        self.accumulator = Accumulator(AccumulatorOptions(**(defaults | options)), self.pool, random=lambda: 0.5)
        self.leader = NODE
        if options.get("is_idempotent"):
            self.accumulator.set_producer(5, 0)

    def append(self, value=b"v", partition=0, *, slot=None, key=None):
        wall_ms, now_ms = self.clock.wall_ms(), self.clock.monotonic_ms()
        return self.accumulator.append("t", partition, key, value, (), wall_ms, now_ms, slot)

    def ready(self):
        return self.accumulator.ready(self.clock.monotonic_ms(), lambda topic, partition: self.leader)

    @property
    def is_ready(self):
        return self.ready().nodes == {NODE}

    def drain(self, *, partitions=(0,), max_request_bytes=1_000_000):
        wanted = [("t", partition) for partition in partitions]
        return self.accumulator.drain(NODE, wanted, self.clock.monotonic_ms(), max_request_bytes)

    def drain_one(self):
        (batch,) = self.drain()
        return batch

    def retry(self, batch):
        self.accumulator.retry(batch, self.clock.monotonic_ms())

    def expire(self):
        return self.accumulator.expire(self.clock.monotonic_ms())


def values(batch):
    return [record.value for record in decode_records(batch.data)]


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


def test_a_value_that_is_not_bytes_leaves_no_trace():
    bench = Bench(linger_ms=0)
    with pytest.raises(TypeError):
        bench.append("text")
    assert bench.pool.available_bytes == bench.pool.total_bytes
    assert not bench.is_ready


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
    bench.accumulator.queues["t", 0].next_sequence = sequence
    found = []
    while batches := bench.drain():
        header = check_batch(batches[0].data)
        assert header.base_sequence == (sequence + len(found)) % 2**31
        assert (header.producer_id, header.producer_epoch, header.codec_number) == (5, 0, codec)
        decoded = decode_records(batches[0].data)
        assert [record.offset for record in decoded] == list(range(header.record_count))
        assert header.max_timestamp == max(record.timestamp_ms for record in decoded)
        assert header.record_count == 1 or batches[0].reserved_bytes >= len(batches[0].body)
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


# ----------------------------------------------------------------------------------------------- retries, sequences


def filled(bench, count):
    for number in range(count):
        bench.append(b"%d" % number * 200)
    return [bench.drain_one() for _ in range(count)]


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
    bench.accumulator.queues["t", 0].next_sequence = 2**31 - 1
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
        assert all(base + count == after for (base, count), (after, _) in itertools.pairwise(sequences))


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


def test_no_new_sequences_after_a_numbered_batch_was_given_up_until_the_epoch_is_new():
    bench = Bench(is_idempotent=True, linger_ms=0)
    (batch,) = filled(bench, 1)
    bench.retry(batch)
    bench.clock.advance(1000)
    assert bench.expire() == [batch]
    bench.append()
    assert not bench.is_ready
    bench.accumulator.set_producer(5, 1)
    assert check_batch(bench.drain_one().data).base_sequence == 0


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
