"""The batches of one partition: those that wait, those that are with a broker, and how they are numbered.

An idempotent producer numbers the records of each partition; the broker takes a batch only if its number follows that
of the one before, and knows again one that it has. Numbers belong to a producer id and epoch. They are given when a
batch is first drained and kept when it is sent again.

A numbered batch that is given up leaves a gap: the broker has it or not. It is counted as doubtful, and until that is
settled nothing new is numbered. It is settled when the broker's answer comes after all; or when nothing is in flight
any more, or the broker refuses the first in flight for its number: then the partition begins at 0 under a new epoch
(KIP-360), and what was refused is numbered anew. What a broker may have is never numbered anew, or it would have it
twice.
"""

from collections import deque

from headrace.client.producer.batch import ProducerBatch
from headrace.protocol.records import NO_PRODUCER_ID

#: Producer id and epoch.
Producer = tuple[int, int]
NO_PRODUCER: Producer = (NO_PRODUCER_ID, -1)


class Lane:
    """The requests that are on their way to a broker: ``is_full`` says that it takes no more."""

    __slots__ = ("_count", "_most", "is_full")

    def __init__(self, most: int) -> None:
        self._count = 0
        self._most = most
        self.is_full = False

    def enter(self) -> None:
        self._count += 1
        self.is_full = self._count >= self._most

    def leave(self) -> None:
        self._count -= 1
        self.is_full = False


class PartitionQueue:
    __slots__ = (
        "batches", "doubtful_count", "in_flight", "is_admitted", "is_muted", "lane", "must_renumber",
        "next_sequence", "partition", "producer", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, *, is_admitted: bool = True) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        #: Drained and not done, oldest first; with sequences, also those that wait here to be sent again.
        self.in_flight: list[ProducerBatch] = []
        self.is_muted = False
        #: The way to the broker that leads the partition, as far as it is known.
        self.lane: Lane | None = None
        #: Whether the transaction has the partition; without transactions always.
        self.is_admitted = is_admitted
        #: Whose numbers ``next_sequence`` goes on with.
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

    def is_held(self, producer: Producer) -> bool:
        """Whether the head of an idempotent producer's queue waits for a broker, and not for time."""
        if producer[0] == NO_PRODUCER_ID or self.must_renumber:
            return True
        batch = self.batches[0]
        if batch.has_sequence:
            return self.in_flight[0] is not batch
        if self.producer != producer:
            return bool(self.in_flight)  # The old epoch is to end before the new one begins.
        return self.doubtful_count > 0

    def sequence_for(self, batch: ProducerBatch, producer: Producer) -> int:
        """The number of a batch that is about to be sealed."""
        if batch.has_sequence:
            return batch.base_sequence
        if self.producer != producer:
            self.producer, self.next_sequence, self.doubtful_count = producer, 0, 0
        return self.next_sequence

    def requeue(self, batch: ProducerBatch) -> None:
        """Back to the front; a numbered one among those that are back already, by its number."""
        if not batch.has_sequence:
            self.in_flight = [other for other in self.in_flight if other is not batch]
            self.batches.appendleft(batch)
            return
        # By place in flight, not by number: sequences wrap around.
        place = {other: at for at, other in enumerate(self.in_flight)}
        before = 0
        while before < len(self.batches) and place.get(self.batches[before], len(place)) < place[batch]:
            before += 1
        self.batches.insert(before, batch)

    def renumber(self) -> None:
        """Takes back the numbers of all that are to be sent again. Only while nothing is with a broker."""
        for batch in self.in_flight:
            assert batch.is_done or batch in self.batches, "a batch is with the broker under the old epoch"
            batch.unseal()
        self.in_flight = []
        self.producer, self.next_sequence, self.doubtful_count, self.must_renumber = NO_PRODUCER, 0, 0, False
