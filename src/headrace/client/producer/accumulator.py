"""Where records wait to be sent: a queue of batches for each partition (the seeds' RecordAccumulator).

A record goes into the last batch of its partition's queue; where it does not fit, a new batch is opened with memory
from the pool. The sender asks ``ready`` which brokers there is something for, and ``drain`` for the batches that one
request to a broker takes: the first batch of each of its partitions, as far as they fit.

A batch at the head of its queue is ready when any of these holds:

    full         no more goes in, or another batch waits behind it
    lingered     it has waited for linger.ms
    exhausted    somebody waits for memory, which only sending frees
    closed       the producer is closing
    flushing     somebody waits in flush()
    completing   a transaction is being committed or aborted

unless it is backing off (it failed, and its time to try again has not come) or its partition is muted (one batch in
flight at most, so that a retry reorders nothing).

A batch that is full need not close. Where its broker has as many requests in flight as it may, or more batches of its
partition wait than would fill them, it has to wait for an answer anyway; so it grows on, by ``batch.size`` at a time,
each reserved from the pool, until it is drained. A broker takes one batch a partition and request: were none larger
than ``batch.size``, a partition would get at most ``max.in.flight.requests.per.connection`` of them a round trip,
however much there is to send.

Sequences of an idempotent producer are given when a batch is first drained, and kept for its retries: the broker
knows by them what it has already (``partition_queue.py``). A batch that comes back goes to the front again, before
those with higher sequences; and while some are in flight, the only one that may be sent again is the first of them,
since the broker would refuse those after it anyway. While some are with a broker that led the partition before, a new
one is not sent to the next.

No I/O and no clock in here: ``now_ms`` is monotonic and comes with each call. No method takes ``lock``: where several
threads are about, as with the blocking producer, whose ``send`` appends on the caller's thread while the sender drains
on another, each of them holds it around its calls.
"""

from collections.abc import Iterable, Sequence

from headrace.client.producer.accumulator_types import LeaderOf, Ready
from headrace.client.producer.batch import ProducerBatch, record_bound_bytes
from headrace.client.producer.batch_endings import BatchEndings
from headrace.client.producer.encoded_batch import EncodedBatch
from headrace.client.producer.partition_queue import NO_PRODUCER, PartitionQueue
from headrace.client.producer.partitioners import LoadTable
from headrace.protocol.record_body import Headers
from headrace.protocol.records import HEADER_BYTES, NO_SEQUENCE


class Accumulator(BatchEndings):
    """Records come in; brokers take batches out. What becomes of those is in ``batch_endings.py``."""

    # ------------------------------------------------------------------------------------------------------ filling

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
        slot: object = None,
        reserved_bytes: int = 0,
    ) -> ProducerBatch | None:
        """The batch that the record went into, as its last; or None: it needs a new one, and there is no memory.

        Then reserve ``memory_for`` the record from the pool and call again with ``reserved_bytes``: they are the
        batch's from then on, or go back to the pool if the record has found room after all.

        :raises LargerThanPool: if the record is larger than the whole of buffer.memory.
        """
        assert not self.is_closed, "the producer refuses records once it is closed"
        assert value is None or type(value) is bytes, "the producer makes bytes of what is none"
        queue = self.queue_of(topic, partition)
        if queue.batches:
            batch = queue.batches[-1]
            if batch.is_open and (
                batch.append(timestamp_ms, key, value, headers, slot)
                or (
                    self._grow(queue, batch, key, value, headers)
                    and batch.append(timestamp_ms, key, value, headers, slot)
                )
            ):
                if reserved_bytes:
                    self.pool.release(reserved_bytes)
                return batch
        if not reserved_bytes:
            reserved_bytes = self.memory_for(key, value, headers)
            if not self.pool.try_reserve(reserved_bytes):
                return None
        self.last_number += 1
        batch = ProducerBatch(
            topic, partition, limit_bytes=self.options.batch_size_bytes, reserved_bytes=reserved_bytes,
            created_ms=now_ms, number=self.last_number,
        )  # fmt: skip
        batch.append(timestamp_ms, key, value, headers, slot)
        self._enqueue(queue, batch)
        return batch

    def append_encoded(
        self, topic: str, encoded: EncodedBatch, now_ms: int, *, reserved_bytes: int = 0
    ) -> ProducerBatch | None:
        """Queues a whole batch that is encoded already. Returns None if there is no memory, as :meth:`append` does.

        Then reserve ``encoded.size_bytes`` from the pool and call again with ``reserved_bytes``.

        :raises LargerThanPool: if the batch is larger than the whole of buffer.memory.
        """
        assert not self.is_closed, "the producer refuses records once it is closed"
        assert encoded.size_bytes > HEADER_BYTES, "an empty batch is never sent"
        if not reserved_bytes:
            reserved_bytes = encoded.size_bytes
            if not self.pool.try_reserve(reserved_bytes):
                return None
        self.last_number += 1
        batch = ProducerBatch.of_encoded(
            topic, encoded, reserved_bytes=reserved_bytes, created_ms=now_ms, number=self.last_number
        )
        self._enqueue(self.queue_of(topic, encoded.partition), batch)
        return batch

    def queue_of(self, topic: str, partition: int) -> PartitionQueue:
        queue = self.queues.get((topic, partition))
        if queue is None:
            is_admitted = not self.options.is_transactional
            queue = self.queues[topic, partition] = PartitionQueue(topic, partition, is_admitted=is_admitted)
        return queue

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if queue.batches and queue.batches[-1].is_open:
            queue.batches[-1].close()
        queue.batches.append(batch)
        self._incomplete[batch] = None

    def may_grow(self, batch: ProducerBatch) -> bool:
        """Whether a full batch stays open: it has to wait for an answer anyway. Its topic may refuse large ones."""
        if batch.limit_bytes + self.options.batch_size_bytes > self.options.most_batch_bytes:
            return False
        queue = self.queues[batch.topic, batch.partition]
        is_many = len(queue.batches) + len(queue.in_flight) > self.options.max_in_flight
        has_to_wait = is_many or (queue.lane is not None and queue.lane.is_full)
        return has_to_wait and batch.topic not in self._topics_with_limits

    def _grow(
        self, queue: PartitionQueue, batch: ProducerBatch, key: bytes | None, value: bytes | None, headers: Headers
    ) -> bool:
        size_bytes = self.options.batch_size_bytes
        is_small = record_bound_bytes(key, value, headers) <= size_bytes
        if queue.batches[-1] is batch and is_small and self.may_grow(batch) and self.pool.try_reserve(size_bytes):
            batch.grow(size_bytes)
            return True
        return False

    def has_room(self, topic: str, partition: int, size_bytes: int) -> bool:
        """Whether a record of about this size needs no new batch: what KIP-480 asks before it stays."""
        queue = self.queues.get((topic, partition))
        if queue is None or not queue.batches:
            return False
        batch = queue.batches[-1]
        return batch.is_open and batch.used_bytes + size_bytes <= batch.limit_bytes

    def memory_for(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """What a new batch for this record takes from the pool."""
        return max(self.options.batch_size_bytes, record_bound_bytes(key, value, headers))

    # ------------------------------------------------------------------------------------------------------- sending

    def ready(self, now_ms: int, leader_of: LeaderOf) -> Ready:
        """The brokers that there is something for."""
        answer = Ready()
        send_all = self._sends_all()
        for queue in self.queues.values():
            if not queue.batches or self._is_held(queue):
                continue
            leader = leader_of(queue.topic, queue.partition)
            if leader is None:
                answer.unknown_leader_topics.add(queue.topic)
            elif leader not in answer.nodes and not self._awaits_others(queue, leader):
                delay_ms = self._delay_ms(queue, now_ms, send_all)
                if delay_ms > 0:
                    answer.check_within(delay_ms)
                else:
                    answer.nodes.add(leader)
        return answer

    def _sends_all(self) -> bool:
        """Whether batches go without regard to linger.ms."""
        return self.pool.waiting > 0 or self.is_closed or self._flushes > 0 or self.is_transaction_completing

    def _delay_ms(self, queue: PartitionQueue, now_ms: int, send_all: bool) -> int:
        """How long until the head of a queue may go; 0 or less: now."""
        batch = queue.batches[0]
        if batch.attempts:  # It was ready once; only its backoff holds it.
            return batch.retry_at_ms - now_ms
        if send_all or len(queue.batches) > 1 or batch.is_full:
            return 0
        return batch.created_ms + self.options.linger_ms - now_ms

    def drain(
        self, node_id: int, partitions: Sequence[tuple[str, int]], now_ms: int, max_request_bytes: int
    ) -> list[ProducerBatch]:
        """The batches for one request to a node that leads these partitions: sealed, in flight, one a partition.

        A node that is ready takes what its other partitions have too, lingered or not: the request goes anyway. One
        batch goes even if it is larger than the request may be; the broker is to say what it thinks of it.
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
            if (batch.attempts and batch.retry_at_ms > now_ms) or self._awaits_others(queue, node_id):
                continue
            if drained and size_bytes + batch.size_bytes > max_request_bytes:
                self._drain_from[node_id] = at
                return drained
            self._seal(queue, batch)
            queue.batches.popleft()
            if batch not in queue.in_flight:
                queue.in_flight.append(batch)
            batch.sent_to = node_id
            size_bytes += batch.size_bytes
            drained.append(batch)
        self._drain_from[node_id] = start + 1
        return drained

    def _is_held(self, queue: PartitionQueue) -> bool:
        """Whether a queue waits for an answer of a broker, and not for time."""
        return queue.is_muted or not queue.is_admitted or (self.options.is_idempotent and queue.is_held(self.producer))

    def _awaits_others(self, queue: PartitionQueue, node_id: int) -> bool:
        """Whether batches before the head are with another broker. One that has come to lead meanwhile may never have
        heard of this producer, and would take the head for its first batch, and those before it for strangers."""
        return (
            self.options.is_idempotent
            and not queue.batches[0].has_sequence
            and any(batch.sent_to != node_id for batch in queue.in_flight)
        )

    def _seal(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch.is_sealed:
            return  # A retry: the same bytes, so that the broker knows them again.
        producer, sequence = NO_PRODUCER, NO_SEQUENCE
        is_numbered = self.options.is_idempotent and not batch.has_sequence
        if self.options.is_idempotent:
            sequence = queue.sequence_for(batch, self.producer)
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

    # --------------------------------------------------------------------------------- what the sender and others set

    def begin_flush(self) -> int:
        """Send all without delay until ``end_flush``. The mark is for ``is_flushed``."""
        self._flushes += 1
        return self.last_number

    def end_flush(self) -> None:
        assert self._flushes, "a flush ends that never began"
        self._flushes -= 1

    def is_flushed(self, mark: int) -> bool:
        return not any(batch.number <= mark for batch in self._incomplete)

    @property
    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def mute(self, topic: str, partition: int) -> None:
        self.queues[topic, partition].is_muted = True

    def unmute(self, topic: str, partition: int) -> None:
        self.queues[topic, partition].is_muted = False

    def load_of(self, topic: str, partitions: Iterable[int]) -> LoadTable | None:
        """How long the queues are, for the adaptive partitioner. Leave out partitions of slow leaders."""
        indexes = tuple(partitions)
        queues = (self.queues.get((topic, index)) for index in indexes)
        return LoadTable.of_queues(indexes, [len(queue.batches) if queue is not None else 0 for queue in queues])
