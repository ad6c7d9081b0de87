"""Holds the producer id and epoch of an idempotent producer, and starts new epochs.

A new epoch starts a partition's sequence numbers at 0 again. ``partition_queue.py`` says when that is needed. The
accumulator's lock is held around all calls.
"""

from collections.abc import Mapping

from headrace.client.producer.partition_queue import PartitionQueue
from headrace.client.transactions.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.protocol.records import NO_PRODUCER_ID

_MAX_EPOCH = 2**15 - 1


class ProducerEpochs:
    """The current producer id and epoch, and the partitions that must change to it."""

    def __init__(
        self, queues: Mapping[tuple[str, int], PartitionQueue], *, is_idempotent: bool, is_transactional: bool
    ) -> None:
        self.producer: ProducerIdAndEpoch = NO_PRODUCER
        self._queues = queues
        self._is_idempotent = is_idempotent
        self._is_transactional = is_transactional

    def set_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Sets a new id or epoch. All sequence numbers start at 0 again, and waiting batches get new numbers.

        No batch may be with a broker, so that all batches in flight also wait in their queues.
        """
        self.producer = (producer_id, producer_epoch)
        for queue in self._queues.values():
            queue.renumber()

    def bump_epoch(self, queue: PartitionQueue) -> None:
        """Starts the next epoch, because the sequence numbers of a partition went wrong (KIP-360).

        Other partitions follow when their batches in flight are done. After the last epoch the producer needs another
        producer id; :attr:`needs_producer_id` tells when.
        """
        assert not self._is_transactional, "the coordinator gives a transactional producer its epochs"
        queue.must_renumber = True
        producer_id, epoch = self.producer
        if producer_id != NO_PRODUCER_ID and queue.producer in (self.producer, NO_PRODUCER):
            self.producer = (producer_id, epoch + 1) if epoch < _MAX_EPOCH else NO_PRODUCER
        self.resolve(queue)

    def resolve(self, queue: PartitionQueue) -> None:
        """Starts a new epoch for a partition as soon as no answer can resolve its doubtful batches any more."""
        if queue.must_renumber:
            if not queue.has_any_with_broker:
                queue.renumber()
        elif queue.doubtful_count and not queue.in_flight and not self._is_transactional:
            self.bump_epoch(queue)

    @property
    def needs_producer_id(self) -> bool:
        """Whether the producer needs an id, and :meth:`set_producer` may be called now."""
        if not self._is_idempotent or self.producer[0] != NO_PRODUCER_ID:
            return False
        return not any(queue.has_any_with_broker for queue in self._queues.values())
