"""Holds records until they are sent: a queue of batches per partition (Java's RecordAccumulator).

A record goes into the last batch of its partition's queue. If the record does not fit, the accumulator opens a new
batch with memory from the pool. The sender calls ``ready`` to learn which brokers have something to send, and ``drain``
to get the batches of one request: the first batch of each partition of the broker, as far as they fit.

A batch at the head of its queue is ready if one of these is true:

    full         no more records fit, or another batch waits behind it
    lingered     it has waited for linger.ms
    exhausted    a caller waits for memory, which only sending frees
    closed       the producer is closing
    flushing     a caller waits in flush()
    completing   a transaction is being committed or aborted

A ready batch still waits in two cases: it has failed and its backoff is not over, or its partition is muted (at most
one batch in flight, so that a retry changes no order).

A full batch does not always close. If it must wait for an answer anyway, because its broker has the maximum of requests
in flight or many batches of the partition wait, the batch stays open and grows. It grows by ``batch.size`` at a time,
reserved from the pool, until it is drained. The reason: a request has one batch per partition. Without growth, a
partition would get at most ``max.in.flight.requests.per.connection`` times ``batch.size`` bytes per round trip.

A batch of an idempotent producer gets its sequence number when it is first drained, and keeps it for retries: the
broker uses the number to recognize a batch that it has already (``partition_queue.py``). A batch that comes back goes
to the front of its queue, in the order of the numbers. While batches are in flight, only the first of them is sent
again, because the broker would reject those behind it. While batches are with a former leader of the partition, no new
batch goes to the next leader.

``unfinished`` knows the batches that are not done. ``completion`` ends batches that were drained. ``epochs`` has the
producer id and epoch.

No I/O and no clock: ``now_ms`` is monotonic and passed in. No method takes ``lock``. If several threads use the
accumulator, each thread holds the lock around its calls. The blocking producer does so: ``send`` appends on the
caller's thread while the sender drains on another.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import RLock

from headrace.client.encoded_batch import EncodedBatch
from headrace.client.own_random import random
from headrace.client.partitioners.strategies import LoadTable
from headrace.client.producer.accumulator_options import AccumulatorOptions
from headrace.client.producer.batch import ProducerBatch, record_bound_bytes
from headrace.client.producer.batch_completion import BatchCompletion
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.partition_queue import PartitionQueue
from headrace.client.producer.producer_epochs import ProducerEpochs
from headrace.client.producer.record import ProducerRecord
from headrace.client.producer.unfinished_batches import UnfinishedBatches
from headrace.client.transactions.producer_ids import NO_PRODUCER
from headrace.protocol.records import NO_SEQUENCE

LeaderOf = Callable[[str, int], int | None]


@dataclass(slots=True)
class ReadyNodes:
    """The brokers that have batches to send now."""

    nodes: set[int] = field(default_factory=set)
    #: The time until the next batch may become ready; None if no batch waits for time alone.
    next_check_delay_ms: int | None = None
    unknown_leader_topics: set[str] = field(default_factory=set)

    def check_within(self, delay_ms: int) -> None:
        if self.next_check_delay_ms is None or delay_ms < self.next_check_delay_ms:
            self.next_check_delay_ms = max(0, delay_ms)


class Accumulator:
    """Takes records in, and gives batches to brokers."""

    def __init__(self, options: AccumulatorOptions, pool: BufferPool, *, random: Callable[[], float] = random) -> None:
        self.options = options
        self.pool = pool
        self.lock = RLock()
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.is_closed = False
        self.is_transaction_completing = False
        self.unfinished = UnfinishedBatches()
        self.epochs = ProducerEpochs(
            self.queues, is_idempotent=options.is_idempotent, is_transactional=options.is_transactional
        )
        self.completion = BatchCompletion(options, self.queues, pool, self.unfinished, self.epochs, random=random)
        #: The place where the last drain of a broker stopped, so that a full request does not starve the partitions
        #: behind it.
        self._drain_from: dict[int, int] = {}

    # ------------------------------------------------------------------------------------------------------ filling

    def append(
        self, record: ProducerRecord, partition: int, now_ms: int, reserved_bytes: int = 0
    ) -> ProducerBatch | None:
        """Appends a record and returns its batch. The record is the last one of the batch.

        Returns None if the record needs a new batch and there is no memory. Then the caller reserves
        ``memory_for(record)`` bytes from the pool and calls again with ``reserved_bytes``. The bytes belong to the new
        batch, or go back to the pool if the record fits into another batch by then.

        :raises LargerThanPool: if the record is larger than ``buffer.memory``.
        """
        key, value, headers = record.key, record.value, record.headers
        assert not self.is_closed, "the producer refuses records once it is closed"
        assert value is None or type(value) is bytes, "the producer serializes values"
        queue = self.queue_of(record.topic, partition)
        if queue.batches:
            batch = queue.batches[-1]
            if batch.is_open and (
                batch.append(record.timestamp_ms, key, value, headers, record.on_delivery)
                or (
                    self._grow(queue, batch, record)
                    and batch.append(record.timestamp_ms, key, value, headers, record.on_delivery)
                )
            ):
                if reserved_bytes:
                    self.pool.release(reserved_bytes)
                return batch
        if not reserved_bytes:
            reserved_bytes = self.memory_for(record)
            if not self.pool.try_reserve(reserved_bytes):
                return None
        batch = ProducerBatch(
            record.topic, partition, limit_bytes=self.options.batch_size_bytes, reserved_bytes=reserved_bytes,
            created_ms=now_ms, number=self.unfinished.next_number(),
        )  # fmt: skip
        batch.append(record.timestamp_ms, key, value, headers, record.on_delivery)
        self._enqueue(queue, batch)
        return batch

    def append_encoded(
        self, topic: str, encoded: EncodedBatch, now_ms: int, *, reserved_bytes: int = 0
    ) -> ProducerBatch | None:
        """Appends a whole batch that is encoded already. Returns None if there is no memory, as :meth:`append` does.

        Then the caller reserves ``encoded.size_bytes`` bytes from the pool and calls again with ``reserved_bytes``.

        :raises LargerThanPool: if the batch is larger than ``buffer.memory``.
        """
        assert not self.is_closed, "the producer refuses records once it is closed"
        if not reserved_bytes:
            reserved_bytes = len(encoded.body)
            if not self.pool.try_reserve(reserved_bytes):
                return None
        batch = ProducerBatch.of_encoded(
            topic, encoded, reserved_bytes=reserved_bytes, created_ms=now_ms, number=self.unfinished.next_number()
        )
        self._enqueue(self.queue_of(topic, encoded.partition), batch)
        return batch

    def queue_of(self, topic: str, partition: int) -> PartitionQueue:
        queue = self.queues.get((topic, partition))
        if queue is None:
            is_in_transaction = not self.options.is_transactional
            queue = PartitionQueue(topic, partition, is_in_transaction=is_in_transaction)
            self.queues[topic, partition] = queue
        return queue

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if queue.batches and queue.batches[-1].is_open:
            queue.batches[-1].close()
        queue.batches.append(batch)
        self.unfinished.add(batch)

    def may_grow(self, batch: ProducerBatch) -> bool:
        """Whether a full batch stays open because it must wait for an answer anyway.

        Batches of a topic that has rejected a large batch do not grow.
        """
        if batch.limit_bytes + self.options.batch_size_bytes > self.options.max_batch_bytes:
            return False
        queue = self.queues[batch.topic, batch.partition]
        is_many = len(queue.batches) + len(queue.in_flight) > self.options.max_in_flight
        must_wait = is_many or (queue.leader_requests is not None and queue.leader_requests.is_full)
        return must_wait and batch.topic not in self.completion.topics_with_limits

    def _grow(self, queue: PartitionQueue, batch: ProducerBatch, record: ProducerRecord) -> bool:
        size_bytes = self.options.batch_size_bytes
        is_small = record_bound_bytes(record.key, record.value, record.headers) <= size_bytes
        if queue.batches[-1] is batch and is_small and self.may_grow(batch) and self.pool.try_reserve(size_bytes):
            batch.grow(size_bytes)
            return True
        return False

    def has_room(self, topic: str, partition: int, size_bytes: int) -> bool:
        """Whether a record of about this size needs no new batch. KIP-480 asks this before it changes partitions."""
        queue = self.queues.get((topic, partition))
        if queue is None or not queue.batches:
            return False
        batch = queue.batches[-1]
        return batch.is_open and batch.used_bytes + size_bytes <= batch.limit_bytes

    def memory_for(self, record: ProducerRecord) -> int:
        """Returns the number of bytes that a new batch for this record takes from the pool."""
        return max(self.options.batch_size_bytes, record_bound_bytes(record.key, record.value, record.headers))

    # ------------------------------------------------------------------------------------------------------- sending

    def ready(self, now_ms: int, leader_of: LeaderOf) -> ReadyNodes:
        """Finds the brokers that have something to send."""
        found = ReadyNodes()
        send_all = self._sends_all()
        for queue in self.queues.values():
            if not queue.batches or self._is_held(queue):
                continue
            leader = leader_of(queue.topic, queue.partition)
            if leader is None:
                found.unknown_leader_topics.add(queue.topic)
            elif leader not in found.nodes and not self._waits_for_former_leader(queue, leader):
                delay_ms = self._delay_ms(queue, now_ms, send_all)
                if delay_ms > 0:
                    found.check_within(delay_ms)
                else:
                    found.nodes.add(leader)
        return found

    def _sends_all(self) -> bool:
        """Whether batches are sent without waiting for linger.ms."""
        return self.pool.waiting > 0 or self.is_closed or self.unfinished.is_flushing or self.is_transaction_completing

    def _delay_ms(self, queue: PartitionQueue, now_ms: int, send_all: bool) -> int:
        """Returns the time until the head of a queue may be sent; 0 or less means now."""
        batch = queue.batches[0]
        if batch.attempts:  # It was ready before. Only its backoff delays it.
            return batch.retry_at_ms - now_ms
        if send_all or len(queue.batches) > 1 or batch.is_full:
            return 0
        return batch.created_ms + self.options.linger_ms - now_ms

    def drain(
        self, node_id: int, partitions: Sequence[tuple[str, int]], now_ms: int, max_request_bytes: int
    ) -> list[ProducerBatch]:
        """Returns the batches for one request to a broker that leads these partitions, one batch per partition.

        The batches are sealed and in flight. If one partition is ready, the request takes batches of the broker's other
        partitions too, even before ``linger.ms``. The first batch goes even if it is larger than a request may be: the
        broker decides whether to reject it.
        """
        drained: list[ProducerBatch] = []
        size_bytes = 0
        start = self._drain_from.get(node_id, 0) % max(1, len(partitions))
        for step in range(len(partitions)):
            at = (start + step) % len(partitions)
            queue = self.queues.get(partitions[at])
            if queue is None or not queue.batches or self._is_held(queue):
                continue
            batch = queue.batches[0]
            if (batch.attempts and batch.retry_at_ms > now_ms) or self._waits_for_former_leader(queue, node_id):
                continue
            if drained and size_bytes + batch.size_bytes > max_request_bytes:
                self._drain_from[node_id] = at
                return drained
            self._seal(queue, batch)
            queue.batches.popleft()
            if batch not in queue.in_flight:
                queue.in_flight.append(batch)
            batch.sent_to_node = node_id
            size_bytes += batch.size_bytes
            drained.append(batch)
        self._drain_from[node_id] = start + 1
        return drained

    def _is_held(self, queue: PartitionQueue) -> bool:
        """Whether a queue waits for a broker's answer, and not for time."""
        return (
            queue.is_muted
            or not queue.is_in_transaction
            or (self.options.is_idempotent and queue.is_held(self.epochs.producer))
        )

    def _waits_for_former_leader(self, queue: PartitionQueue, node_id: int) -> bool:
        """Whether earlier batches of the queue are with another broker than this one.

        A broker that became the leader meanwhile may not know this producer yet. It would take the head of the queue
        for the producer's first batch, and reject the earlier batches when they are sent again.
        """
        return (
            self.options.is_idempotent
            and not queue.batches[0].has_sequence
            and any(batch.sent_to_node != node_id for batch in queue.in_flight)
        )

    def _seal(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.is_sealed:
            return  # A retry sends the same bytes, so that the broker recognizes the batch.
        producer, sequence = NO_PRODUCER, NO_SEQUENCE
        is_numbered = self.options.is_idempotent and not batch.has_sequence
        if self.options.is_idempotent:
            sequence = queue.sequence_for(batch, self.epochs.producer)
            producer = queue.producer
        batch.seal(
            self.options.codec,
            self.options.compression_level,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=self.options.is_transactional,
        )
        if is_numbered:
            queue.next_sequence = batch.next_sequence

    # ------------------------------------------------------------------------------------------------- partitions

    def mute(self, topic: str, partition: int) -> None:
        """Sends no more batches of a partition until :meth:`unmute`."""
        self.queues[topic, partition].is_muted = True

    def unmute(self, topic: str, partition: int) -> None:
        self.queues[topic, partition].is_muted = False

    def load_of(self, topic: str, partitions: Iterable[int]) -> LoadTable | None:
        """Returns the queue lengths of some partitions, for the adaptive partitioner."""
        indexes = tuple(partitions)
        queues = (self.queues.get((topic, index)) for index in indexes)
        return LoadTable.of_queues(indexes, [len(queue.batches) if queue is not None else 0 for queue in queues])
