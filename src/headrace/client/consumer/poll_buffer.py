"""Records on their way from the positions to the user, and what counts as consumed meanwhile.

``poll()`` gives lists; an iteration goes through such lists, a *round* each. Going through a list is what Python does
fastest, so the iteration uses the list's own iterator, and whoever must know how far the user got asks that: what is
left in it is not consumed yet. A seek, a pause or a lost partition empties it, which ends the round; what was left of
other partitions is the next one.

A deserializer that fails ends a list before its record. The next call raises, and again until the user seeks past it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from operator import length_hint
from typing import Any

from headrace.client.consumer.fetch_positions import BatchToRead, FetchPositions
from headrace.client.consumer.fetched_batches import FetchedBatch
from headrace.client.consumer.record_decoding import decode_batch
from headrace.client.errors import NotDeserialized, error_for
from headrace.client.types import ConsumedRecord, OffsetAndMetadata, TopicPartition
from headrace.protocol.errors import KafkaError

Deserializer = Callable[[bytes | None], Any]


class Handout:
    def __init__(
        self,
        positions: FetchPositions,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        check_crcs: bool = True,
    ) -> None:
        self._positions = positions
        self._key = key_deserializer
        self._value = value_deserializer
        self._check_crcs = check_crcs
        #: The list that an iteration goes through, and how far it got.
        self._round: list[ConsumedRecord] = []
        self._going: Iterator[ConsumedRecord] = iter(())
        #: Behind these: taken from the positions, not deserialized.
        self._raw: list[ConsumedRecord] = []

    # -- to the user

    def take(self, max_records: int) -> list[ConsumedRecord]:
        """
        :raises BrokerError: if a batch cannot be read.
        :raises NotDeserialized: if a deserializer failed on the first record.
        """
        if left := self._left():
            self.begin_round(left[max_records:])
            return left[:max_records]
        return self._take(max_records)

    def take_round(self, max_records: int) -> list[ConsumedRecord]:
        """As :meth:`take`, but all that is left of a round that was left early, or ended by a seek."""
        return self._left() or self._take(max_records)

    def _take(self, max_records: int) -> list[ConsumedRecord]:
        if self._raw:
            records, self._raw = self._raw[:max_records], self._raw[max_records:]
        else:
            with self._positions.lock:
                taken = self._positions.take(max_records, self._decode)
            records = next(iter(taken.values())) if len(taken) == 1 else list(chain.from_iterable(taken.values()))
        if self._key is not None or self._value is not None:
            return self._deserialized(records)
        return records

    def take_batches(self, max_bytes: int) -> list[BatchToRead]:
        """Whole batches, as they were fetched, up to so many bytes, but one at least if there is any."""
        self.give_back(None)
        with self._positions.lock:
            return self._positions.take_batches(max_bytes)

    def begin_round(self, records: list[ConsumedRecord]) -> Iterator[ConsumedRecord]:
        """An iterator of these; what it has not given yet is not consumed."""
        self._round, self._going = records, iter(records)
        return self._going

    def _left(self) -> list[ConsumedRecord]:
        count = length_hint(self._going)
        return self._round[-count:] if count else []

    def _decode(self, partition: TopicPartition, batch: FetchedBatch) -> Sequence[ConsumedRecord]:
        try:
            return decode_batch(*partition, batch.header, batch.data, check_crc=self._check_crcs)
        except KafkaError as error:
            header = batch.header
            where = f"the batch of {partition} at offsets {header.base_offset} to {header.last_offset}"
            message = f"{where} cannot be read: {error}; seek past it to go on"
            raise error_for(error.code, message) from error

    def _deserialized(self, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        done: list[ConsumedRecord] = []
        for record in records:
            try:
                key = record.key if self._key is None else self._key(record.key)
                value = record.value if self._value is None else self._value(record.value)
            except Exception as error:
                self._raw = [*records[len(done) :], *self._raw]
                if done:
                    return done
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                message = f"the record of {where} could not be deserialized: {error!r}; seek past it to go on"
                raise NotDeserialized(message) from error
            done.append(record._replace(key=key, value=value))
        return done

    # -- what is consumed

    def _next_of(self) -> dict[TopicPartition, ConsumedRecord]:
        """Of each partition the first record that was taken from the positions, but that the user does not have."""
        first: dict[TopicPartition, ConsumedRecord] = {}
        for record in chain(self._left(), self._raw):
            first.setdefault(TopicPartition(record.topic, record.partition), record)
        return first

    def position(self, partition: TopicPartition) -> int | None:
        following = self._next_of().get(partition)
        return self._positions.position(partition) if following is None else following.offset

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of everything that the user has says."""
        consumed = self._positions.consumed()
        for partition, record in self._next_of().items():
            if partition in consumed:
                consumed[partition] = OffsetAndMetadata(record.offset, leader_epoch=record.leader_epoch)
        return consumed

    def lag(self, partition: TopicPartition) -> int | None:
        lag, position = self._positions.lag(partition), self._positions.position(partition)
        now = self.position(partition)
        return None if lag is None or position is None or now is None else lag + position - now

    def give_back(self, partitions: Collection[TopicPartition] | None) -> None:
        """Moves the positions back to what the user has; for all partitions, if none are named."""
        for partition, record in self._next_of().items():
            if (partitions is None or partition in partitions) and partition in self._positions.assignment():
                self._positions.seek(partition, record.offset, record.leader_epoch)
        self.drop(partitions)

    def drop(self, partitions: Collection[TopicPartition] | None) -> None:
        """Forgets what the user does not have yet of these; the positions are set by someone else."""
        left = self._left()
        for _ in self._going:  # whoever goes through it is at its end
            pass
        if partitions is None:
            left, self._raw = [], []
        else:
            left = [one for one in left if (one.topic, one.partition) not in partitions]
            self._raw = [one for one in self._raw if (one.topic, one.partition) not in partitions]
        self.begin_round(left)
