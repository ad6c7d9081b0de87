"""Knows which batches are not done yet, for ``flush()``."""

from headrace.client.producer.batch import ProducerBatch


class UnfinishedBatches:
    """The batches that are not done. Each batch has a number that grows with its age, the newest being the highest.

    A flush waits for all batches up to a number. The parts of a split batch keep the number of the whole.
    """

    def __init__(self) -> None:
        self.last_number = 0
        self._batches: dict[ProducerBatch, None] = {}
        self._flushes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def next_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def add(self, batch: ProducerBatch) -> None:
        self._batches[batch] = None

    def remove(self, batch: ProducerBatch) -> None:
        self._batches.pop(batch, None)

    @property
    def is_flushing(self) -> bool:
        return self._flushes > 0

    def begin_flush(self) -> int:
        """Makes all batches ready without delay until :meth:`end_flush`. Returns a mark for :meth:`is_flushed`."""
        self._flushes += 1
        return self.last_number

    def end_flush(self) -> None:
        assert self._flushes, "a flush ends that never began"
        self._flushes -= 1

    def is_flushed(self, mark: int) -> bool:
        return not any(batch.number <= mark for batch in self._batches)
