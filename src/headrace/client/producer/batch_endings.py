"""What becomes of batches once they were drained: delivered, sent again, split, expired, dropped. And their epochs.

The other half of the accumulator (``accumulator.py``), which is where they are filled and drained, and where what is
said of locks and time holds for this half too. How a partition's batches are numbered is in ``partition_queue.py``.
"""

from collections import deque
from collections.abc import Callable
from math import ceil
from random import random
from threading import RLock

from headrace.client.producer.accumulator_types import AccumulatorOptions
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.partition_queue import NO_PRODUCER, PartitionQueue, Producer
from headrace.client.retry import Backoff
from headrace.protocol.records import NO_PRODUCER_ID

_MAX_EPOCH = 2**15 - 1


class BatchEndings:
    def __init__(self, options: AccumulatorOptions, pool: BufferPool, *, random: Callable[[], float] = random) -> None:
        self.options = options
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, random=random)
        self.pool = pool
        self.lock = RLock()
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.is_closed = False
        self.is_transaction_completing = False
        self.producer: Producer = NO_PRODUCER
        self.last_number = 0
        self._flushes = 0
        #: Topics that have refused a batch as too large.
        self._topics_with_limits: set[str] = set()
        self._incomplete: dict[ProducerBatch, None] = {}
        #: Where the last drain of a node stopped, so that a full request does not starve its last partitions.
        self._drain_from: dict[int, int] = {}

    # -------------------------------------------------------------------------------------------------------- ending

    def complete(self, batch: ProducerBatch) -> None:
        """The broker has the batch: its memory is free. Its slots are for the caller to answer."""
        queue = self.queues[batch.topic, batch.partition]
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        if batch.is_done and batch.has_sequence:
            queue.doubtful_count = max(0, queue.doubtful_count - 1)  # Given up too early: it is there.
        self._finish(batch)
        self._settle(queue)

    def fail(self, batch: ProducerBatch) -> None:
        """The batch is given up. For its slots see :meth:`complete`."""
        queue = self.queues[batch.topic, batch.partition]
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        if batch.has_sequence and not batch.is_done:
            queue.doubtful_count += 1
        self._finish(batch)
        self._settle(queue)

    def _finish(self, batch: ProducerBatch) -> None:
        batch.is_done, batch.is_open, batch.plain_limit_bytes = True, False, 0
        batch.encoded_count = batch.record_count
        batch.values, batch.records, batch.packed = [], b"", None
        self._incomplete.pop(batch, None)
        reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        self.pool.release(reserved_bytes)

    def _settle(self, queue: PartitionQueue) -> None:
        """Begins a new epoch for a partition once its doubtful batches cannot be settled by an answer any more."""
        if queue.must_renumber:
            if not queue.has_any_with_broker:
                queue.renumber()
        elif queue.doubtful_count and not queue.in_flight and not self.options.is_transactional:
            self.bump_epoch(queue.topic, queue.partition)

    def retry(self, batch: ProducerBatch, now_ms: int) -> None:
        """Put a batch that failed back to the front, to be sent again once it has backed off."""
        assert not batch.is_done, "an expired batch is failed, not sent again"
        batch.attempts += 1
        batch.retry_at_ms = now_ms + ceil(self._backoff.delay_ms(batch.attempts))
        queue = self.queues[batch.topic, batch.partition]
        queue.requeue(batch)
        self._settle(queue)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Put the records of a batch that the broker found too large back to the front, in smaller batches.

        The caller has seen to it that there is more than one record; one that is too large by itself has failed.
        """
        queue = self.queues[batch.topic, batch.partition]
        self._topics_with_limits.add(batch.topic)
        parts = batch.split()
        at = queue.in_flight.index(batch)
        queue.in_flight[at : at + 1] = parts if batch.has_sequence else []
        del self._incomplete[batch]
        for part in reversed(parts):
            self._incomplete[part] = None
            queue.requeue(part)
        return parts

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Give up batches older than delivery.timeout.ms; the caller answers their slots.

        Those that wait are gone at once. One that is with the broker keeps its memory until ``complete`` or ``fail``,
        since its bytes may still be on their way out; it is reported once, with ``is_done`` set.
        """
        born_before_ms = now_ms - self.options.delivery_timeout_ms
        expired: list[ProducerBatch] = []
        for queue in self.queues.values():
            while queue.batches and queue.batches[0].created_ms <= born_before_ms:
                batch = queue.batches.popleft()
                self.fail(batch)
                expired.append(batch)
            for batch in queue.in_flight:
                if batch.created_ms <= born_before_ms and not batch.is_done:
                    batch.is_done = True
                    queue.doubtful_count += batch.has_sequence
                    expired.append(batch)
        return expired

    def next_expiry_ms(self) -> int | None:
        """The soonest that a batch may expire; None: there is none."""
        born_ms = [batch.created_ms for queue in self.queues.values() for batch in queue.in_flight if not batch.is_done]
        born_ms += [queue.batches[0].created_ms for queue in self.queues.values() if queue.batches]
        return min(born_ms) + self.options.delivery_timeout_ms if born_ms else None

    def abort(self, *, only_unsent: bool = False) -> list[ProducerBatch]:
        """Drop what waits: all of it, or only what the broker has never seen. The caller answers the slots."""
        aborted: list[ProducerBatch] = []
        for queue in self.queues.values():
            kept = [batch for batch in queue.batches if only_unsent and (batch.attempts or batch.has_sequence)]
            dropped = [batch for batch in queue.batches if batch not in kept]
            queue.batches = deque(kept)
            for batch in dropped:
                self.fail(batch)
            aborted += dropped
        return aborted

    # -------------------------------------------------------------------------------------------------------- epochs

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        """A new id or epoch: sequences begin at 0 again, and what is to be sent again is numbered and sealed anew.

        Only while nothing is with a broker, so that all in flight also wait in their queues.
        """
        self.producer = (producer_id, producer_epoch)
        for queue in self.queues.values():
            queue.renumber()

    def bump_epoch(self, topic: str, partition: int) -> None:
        """The numbers of a partition went wrong: it begins anew under the next epoch (KIP-360).

        Other partitions follow when what they have in flight is done. After the last epoch the producer needs another
        id: ``needs_producer`` says so.
        """
        assert not self.options.is_transactional, "the coordinator gives a transactional producer its epochs"
        queue = self.queues[topic, partition]
        queue.must_renumber = True
        producer_id, epoch = self.producer
        if producer_id != NO_PRODUCER_ID and queue.producer in (self.producer, NO_PRODUCER):
            self.producer = (producer_id, epoch + 1) if epoch < _MAX_EPOCH else NO_PRODUCER
        self._settle(queue)

    @property
    def needs_producer(self) -> bool:
        """Whether :meth:`set_producer` is to be called, and may be."""
        if not self.options.is_idempotent or self.producer[0] != NO_PRODUCER_ID:
            return False
        return not any(queue.has_any_with_broker for queue in self.queues.values())

    def is_first_in_flight(self, batch: ProducerBatch) -> bool:
        """Whether a broker that refuses its number cannot have done so for one before it."""
        in_flight = self.queues[batch.topic, batch.partition].in_flight
        return bool(in_flight) and in_flight[0] is batch
