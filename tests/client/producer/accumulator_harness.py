"""An accumulator with a clock and a leader that the test controls."""

from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.accumulator_options import AccumulatorOptions
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.record import ProducerRecord
from headrace.protocol.record_body import decode_records
from headrace.testing import ManualClock

NODE = 7


class AccumulatorHarness:
    """An accumulator whose partitions are all led by one node, on a clock of its own."""

    def __init__(self, *, memory_bytes=1_000_000, **options):
        defaults = {"batch_size_bytes": 300, "linger_ms": 10, "retry_backoff_ms": 100, "delivery_timeout_ms": 1000}
        self.clock = ManualClock()
        self.pool = BufferPool(memory_bytes)
        self.accumulator = Accumulator(AccumulatorOptions(**(defaults | options)), self.pool, random=lambda: 0.5)
        self.leader = NODE
        if options.get("is_idempotent"):
            self.accumulator.epochs.set_producer(5, 0)

    def append(self, value=b"v", partition=0, *, on_delivery=None, key=None):
        record = ProducerRecord("t", partition, key, value, (), self.clock.wall_ms(), on_delivery)
        return self.accumulator.append(record, partition, self.clock.monotonic_ms())

    def number_from(self, sequence):
        queue = self.accumulator.queues["t", 0]
        queue.producer, queue.next_sequence = self.accumulator.epochs.producer, sequence

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
        self.accumulator.completion.retry(batch, self.clock.monotonic_ms())

    def expire(self):
        return self.accumulator.completion.expire(self.clock.monotonic_ms())


def values(batch):
    return [record.value for record in decode_records(batch.data)]


def filled(harness, count):
    for number in range(count):
        harness.append(b"%d" % number * 200)
    return [harness.drain_one() for _ in range(count)]
