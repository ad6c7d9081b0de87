"""Ends batches that were drained: completes, fails, retries, splits, expires or aborts them.

A batch that ends gives its memory back to the pool. Its callbacks are for the caller to call (``delivery.py``). The
accumulator's lock is held around all calls. Time is passed in.
"""

from collections.abc import Callable, Mapping
from math import ceil

from headrace.client.own_random import random
from headrace.client.producer.accumulator_options import AccumulatorOptions
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.buffer_pool import BufferPool
from headrace.client.producer.partition_queue import PartitionQueue
from headrace.client.producer.producer_epochs import ProducerEpochs
from headrace.client.producer.unfinished_batches import UnfinishedBatches
from headrace.client.retry import Backoff


class BatchCompletion:
    """Ends the batches of the accumulator's queues."""

    def __init__(
        self,
        options: AccumulatorOptions,
        queues: Mapping[tuple[str, int], PartitionQueue],
        pool: BufferPool,
        unfinished: UnfinishedBatches,
        epochs: ProducerEpochs,
        *,
        random: Callable[[], float] = random,
    ) -> None:
        self._delivery_timeout_ms = options.delivery_timeout_ms
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, random=random)
        self._queues = queues
        self._pool = pool
        self._unfinished = unfinished
        self._epochs = epochs
        #: Topics that have rejected a batch as too large.
        self.topics_with_limits: set[str] = set()

    def complete(self, batch: ProducerBatch) -> None:
        """Ends a batch that the broker has stored."""
        queue = self._queue_of(batch)
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        if batch.is_done and batch.has_sequence:
            queue.doubtful_count = max(0, queue.doubtful_count - 1)  # It had expired, but the broker has it.
        self._finish(batch)
        self._epochs.resolve(queue)

    def fail(self, batch: ProducerBatch) -> None:
        """Ends a batch that is given up."""
        queue = self._queue_of(batch)
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        if batch.has_sequence and not batch.is_done:
            queue.doubtful_count += 1
        self._finish(batch)
        self._epochs.resolve(queue)

    def _finish(self, batch: ProducerBatch) -> None:
        batch.is_done, batch.is_open, batch.plain_limit_bytes = True, False, 0
        batch.encoded_count = batch.record_count
        batch.values, batch.records, batch.compressed = [], b"", None
        self._unfinished.remove(batch)
        reserved_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        self._pool.release(reserved_bytes)

    def retry(self, batch: ProducerBatch, now_ms: int) -> None:
        """Puts a failed batch back to the front of its queue. It is sent again after its backoff."""
        assert not batch.is_done, "an expired batch is failed, not sent again"
        batch.attempts += 1
        batch.retry_at_ms = now_ms + ceil(self._backoff.delay_ms(batch.attempts))
        queue = self._queue_of(batch)
        queue.requeue(batch)
        self._epochs.resolve(queue)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Puts the records of a batch that the broker found too large back to the front, in smaller batches.

        The batch has more than one record: a single record that is too large has failed.
        """
        queue = self._queue_of(batch)
        self.topics_with_limits.add(batch.topic)
        parts = batch.split()
        at = queue.in_flight.index(batch)
        queue.in_flight[at : at + 1] = parts if batch.has_sequence else []
        self._unfinished.remove(batch)
        for part in reversed(parts):
            self._unfinished.add(part)
            queue.requeue(part)
        return parts

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Gives up the batches that are older than ``delivery.timeout.ms``, and returns them.

        Batches that wait end at once. A batch that is with a broker keeps its memory until :meth:`complete` or
        :meth:`fail`, because its bytes may still be on their way out. It is returned once, with ``is_done`` set.
        """
        created_before_ms = now_ms - self._delivery_timeout_ms
        expired: list[ProducerBatch] = []
        for queue in self._queues.values():
            while queue.batches and queue.batches[0].created_ms <= created_before_ms:
                batch = queue.batches.popleft()
                self.fail(batch)
                expired.append(batch)
            for batch in queue.in_flight:
                if batch.created_ms <= created_before_ms and not batch.is_done:
                    batch.is_done = True
                    queue.doubtful_count += batch.has_sequence
                    expired.append(batch)
        return expired

    def next_expiry_ms(self) -> int | None:
        """Returns the earliest time at which a batch may expire; None if there is no batch."""
        created_ms = [
            batch.created_ms for queue in self._queues.values() for batch in queue.in_flight if not batch.is_done
        ]
        created_ms += [queue.batches[0].created_ms for queue in self._queues.values() if queue.batches]
        return min(created_ms) + self._delivery_timeout_ms if created_ms else None

    def abort(self) -> list[ProducerBatch]:
        """Gives up all batches that wait in their queues, and returns them."""
        aborted: list[ProducerBatch] = []
        for queue in self._queues.values():
            dropped = list(queue.batches)
            queue.batches.clear()
            for batch in dropped:
                self.fail(batch)
            aborted += dropped
        return aborted

    def is_first_in_flight(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch of the partition is in flight.

        If so, and the broker rejects the number of the batch, an earlier batch cannot be the cause.
        """
        in_flight = self._queue_of(batch).in_flight
        return bool(in_flight) and in_flight[0] is batch

    def _queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        return self._queues[batch.topic, batch.partition]
