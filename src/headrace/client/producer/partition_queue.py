"""Holds the batches of one partition: those that wait, those that a broker has, and their sequence numbers.

An idempotent producer numbers the records of each partition. The broker accepts a batch only if its first number
follows the last number of the batch before, and recognizes a batch that it has already. Numbers belong to a producer id
and epoch. A batch gets its number when it is first drained, and keeps the number when it is sent again.

A numbered batch that is given up leaves a doubt: the broker may or may not have stored it. While a batch is in doubt,
no new batch is numbered. The doubt ends in one of three ways:

- The broker's answer arrives late.
- No batch is in flight any more. Then the partition starts at 0 under a new epoch (KIP-360).
- The broker rejects the first batch in flight because of its number. Then the partition starts at 0 under a new epoch,
  and the rejected batches get new numbers.

A batch that the broker may have stored never gets a new number, because the broker would store it a second time.
"""

from collections import deque

from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.in_flight_requests import InFlightRequests
from headrace.client.transactions.producer_ids import NO_PRODUCER, ProducerIdAndEpoch
from headrace.protocol.records import NO_PRODUCER_ID


class PartitionQueue:
    """The batches of one partition, and the state of their numbering."""

    __slots__ = (
        "batches", "doubtful_count", "in_flight", "is_in_transaction", "is_muted", "leader_requests", "must_renumber",
        "next_sequence", "partition", "producer", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, *, is_in_transaction: bool = True) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        #: Batches that were drained and are not done, oldest first. Numbered batches that wait in ``batches`` to be
        #: sent again are here too.
        self.in_flight: list[ProducerBatch] = []
        self.is_muted = False
        #: The unanswered requests of the partition's leader, if the leader is known.
        self.leader_requests: InFlightRequests | None = None
        #: Whether the partition was added to the open transaction. Always True without transactions.
        self.is_in_transaction = is_in_transaction
        #: The producer id and epoch that ``next_sequence`` belongs to.
        self.producer = NO_PRODUCER
        self.next_sequence = 0
        self.doubtful_count = 0
        self.must_renumber = False

    @property
    def is_unresolved(self) -> bool:
        return self.doubtful_count > 0

    @property
    def has_any_with_broker(self) -> bool:
        return any(batch not in self.batches for batch in self.in_flight)

    def is_held(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether the first batch of an idempotent producer waits for a broker's answer, and not for time."""
        if producer[0] == NO_PRODUCER_ID or self.must_renumber:
            return True
        batch = self.batches[0]
        if batch.has_sequence:
            return self.in_flight[0] is not batch
        if self.producer != producer:
            return bool(self.in_flight)  # The old epoch must end before the new epoch begins.
        return self.doubtful_count > 0

    def sequence_for(self, batch: ProducerBatch, producer: ProducerIdAndEpoch) -> int:
        """Returns the first sequence number of a batch that is about to be sealed."""
        if batch.has_sequence:
            return batch.base_sequence
        if self.producer != producer:
            self.producer, self.next_sequence, self.doubtful_count = producer, 0, 0
        return self.next_sequence

    def requeue(self, batch: ProducerBatch) -> None:
        """Puts a batch back to the front. Numbered batches at the front stay in the order of their numbers."""
        if not batch.has_sequence:
            self.in_flight = [other for other in self.in_flight if other is not batch]
            self.batches.appendleft(batch)
            return
        # The order is that of the list in flight. Sequence numbers cannot be compared, because they wrap around.
        place = {other: at for at, other in enumerate(self.in_flight)}
        before = 0
        while before < len(self.batches) and place.get(self.batches[before], len(place)) < place[batch]:
            before += 1
        self.batches.insert(before, batch)

    def renumber(self) -> None:
        """Removes the numbers of all batches that will be sent again. No batch may be with a broker."""
        for batch in self.in_flight:
            assert batch.is_done or batch in self.batches, "a batch is with the broker under the old epoch"
            batch.unseal()
        self.in_flight = []
        self.producer, self.next_sequence, self.doubtful_count, self.must_renumber = NO_PRODUCER, 0, 0, False
