"""Holds the state of a partition's idempotent and transactional producers. No I/O; ``snapshots.py`` stores it.

For each producer id it holds the epoch, the last five batches (so that a batch that is sent again is recognized, and
answered with its first offset), when the producer last wrote, and where its open transaction began.

The sequence of a client's data batch must follow that of the producer's last batch:

================================  ======================================================================
the producer here                  a batch may
================================  ======================================================================
unknown, or expired                start at any sequence (its state may be gone, with old segments)
known, same epoch                  have the sequence after the last one; 0 after 2**31 - 1
known, higher epoch in the batch   start at sequence 0 only
known, lower epoch in the batch    not be appended (the producer is fenced)
================================  ======================================================================

Checks change nothing. :meth:`ProducerStates.note_batch` and :meth:`ProducerStates.note_marker` change the state, after
the bytes are written. Batches from the log itself or from a leader are not checked again: they were checked when a
leader first appended them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from headrace.protocol.records import BatchHeader

BATCHES_KEPT = 5
MAX_SEQUENCE = 2**31 - 1
NONE = -1


class KeptBatch(NamedTuple):
    """One of the last batches of a producer."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int

    @classmethod
    def of(cls, header: BatchHeader) -> "KeptBatch":
        first, last = header.base_sequence, header.last_sequence
        return cls(first, last, header.base_offset, header.last_offset, header.max_timestamp)


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it; -1 stands for none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "has_last_batch_only",
        "last_timestamp_ms",
        "txn_first_offset",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[KeptBatch] = []
        self.last_timestamp_ms = NONE
        self.coordinator_epoch = NONE
        self.txn_first_offset = NONE
        #: The state comes from a snapshot, which has only the last batch. The log may have the others.
        self.has_last_batch_only = False

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NONE

    def check(self, epoch: int, first_sequence: int, last_sequence: int) -> KeptBatch | None:
        """The batch that this one repeats, if it repeats one.

        :raises OutOfOrderSequence: if the sequence does not follow the last batch.
        :raises InvalidProducerEpoch: if the epoch is older than the producer's.
        """
        if epoch == self.epoch:
            batches = self.batches
            expected = (batches[-1].last_sequence + 1) & MAX_SEQUENCE if batches else 0
            if first_sequence == expected:
                return None
            for kept in batches:
                if kept.first_sequence == first_sequence and kept.last_sequence == last_sequence:
                    return kept
            raise OutOfOrderSequence(f"the sequence is {first_sequence}; {expected} was expected")
        if epoch < self.epoch:
            raise InvalidProducerEpoch(f"producer epoch {epoch} is older than {self.epoch}")
        if first_sequence != 0:
            raise OutOfOrderSequence(f"the sequence is {first_sequence}; the new epoch {epoch} must start at 0")
        return None

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []
            self.has_last_batch_only = False


class ProducerStates:
    __slots__ = ("_ended", "_open", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        #: The first offset of each open transaction, by producer, in the order of offsets: the first is the oldest.
        self._open: dict[int, int] = {}
        #: The first offset and the marker's offset of ended transactions whose marker may not be committed yet.
        self._ended: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.producers)

    def active(self) -> list[ActiveProducer]:
        return [
            ActiveProducer(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
            for producer_id, producer in self.producers.items()
        ]

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, is_transactional: bool = False
    ) -> KeptBatch | None:
        """Checks whether a client's batch may be appended now; returns the batch that it repeats, if it repeats one.

        :raises OutOfOrderSequence: if a batch before it is missing, or it is older than the last five batches.
        :raises InvalidProducerEpoch: if another producer has taken over the id.
        :raises InvalidTxnState: if its producer has a transaction open, and the batch is not part of it.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return None
        duplicate = producer.check(epoch, first_sequence, last_sequence)
        if duplicate is None and not is_transactional and producer.txn_first_offset != NONE:
            raise InvalidTxnState(f"producer {producer_id} has an open transaction, and sent a batch outside of it")
        return duplicate

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """
        :raises InvalidProducerEpoch: if another producer has taken over the id.
        :raises TransactionCoordinatorFenced: if another coordinator has taken over the transaction.
        """
        producer = self.producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(f"producer epoch {epoch} is older than {producer.epoch}")
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"coordinator epoch {coordinator_epoch} is older than {producer.coordinator_epoch}"
            )

    def note_batch(self, producer_id: int, epoch: int, batch: KeptBatch, is_transactional: bool) -> None:
        """Notes a batch of records that was appended."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.take_epoch(epoch)
        batches = producer.batches
        if len(batches) >= BATCHES_KEPT:
            del batches[0]
        batches.append(batch)
        producer.last_timestamp_ms = batch.timestamp_ms
        if is_transactional and producer.txn_first_offset == NONE:
            producer.txn_first_offset = batch.base_offset
            self._open[producer_id] = batch.base_offset

    def note_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp_ms: int, is_commit: bool
    ) -> CompletedTxn | None:
        """Notes a marker that was appended; returns the transaction that it ended, if there was one."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = Producer(epoch)
        producer.take_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        first_offset = producer.txn_first_offset
        if first_offset == NONE:
            return None
        producer.txn_first_offset = NONE
        del self._open[producer_id]
        self._ended.append((first_offset, offset))
        return CompletedTxn(producer_id, first_offset, offset, not is_commit)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.producers.get(producer_id)
        return producer is not None and producer.txn_first_offset != NONE and producer.epoch == epoch

    def first_open_offset(self) -> int | None:
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the high watermark."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[1] >= high_watermark]
        oldest = self.first_open_offset()
        if self._ended:
            oldest_ended = min(first for first, _ in self._ended)
            return oldest_ended if oldest is None else min(oldest, oldest_ended)
        return oldest

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Removes the producers that have not written for a time and have no open transaction."""
        gone = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.txn_first_offset == NONE and now_ms - producer.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self.producers[producer_id]

    def restore(self, entries: Iterable[tuple[int, Producer]]) -> None:
        """Takes the producers of a snapshot."""
        self.producers = dict(entries)
        transactions = sorted(
            (producer.txn_first_offset, producer_id)
            for producer_id, producer in self.producers.items()
            if producer.txn_first_offset != NONE
        )
        self._open = {producer_id: first_offset for first_offset, producer_id in transactions}
