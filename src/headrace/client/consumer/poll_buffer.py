"""Holds records between the fetched batches and the user, and knows which records count as consumed.

``poll()`` returns lists. An iteration over the consumer walks through such lists too. The fastest way to walk through a
list is the list's own iterator, so the user gets that iterator. The records that are still in the iterator are not
consumed yet. A seek, a pause or a lost partition empties the iterator, which ends the list. The records of other
partitions that were left in it become the next list.

If a deserializer fails, the list ends before the failed record. The next call raises the error, and each call after it
does, until the user seeks past the record.
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


class PollBuffer:
    """The records that were taken out of the fetched batches, and that the user does not have yet."""

    def __init__(
        self,
        positions: FetchPositions,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        check_crcs: bool = True,
    ) -> None:
        self._positions = positions
        self._deserialize_key = key_deserializer
        self._deserialize_value = value_deserializer
        self._check_crcs = check_crcs
        #: The list that an iteration walks through, and its iterator.
        self._list: list[ConsumedRecord] = []
        self._iterator: Iterator[ConsumedRecord] = iter(())
        #: The records behind that list: taken from the positions, but not deserialized.
        self._raw: list[ConsumedRecord] = []

    # -- records for the user

    def take(self, max_records: int) -> list[ConsumedRecord]:
        """Returns the next records.

        :raises BrokerError: if a batch cannot be read.
        :raises NotDeserialized: if a deserializer failed on the first record.
        """
        if unread := self._unread():
            self.iterate(unread[max_records:])
            return unread[:max_records]
        return self._take(max_records)

    def take_for_iteration(self, max_records: int) -> list[ConsumedRecord]:
        """Does the same as :meth:`take`, but returns all records of an iteration that ended early."""
        return self._unread() or self._take(max_records)

    def _take(self, max_records: int) -> list[ConsumedRecord]:
        if self._raw:
            records, self._raw = self._raw[:max_records], self._raw[max_records:]
        else:
            with self._positions.lock:
                taken = self._positions.take(max_records, self._decode)
            records = next(iter(taken.values())) if len(taken) == 1 else list(chain.from_iterable(taken.values()))
        if self._deserialize_key is not None or self._deserialize_value is not None:
            return self._deserialized(records)
        return records

    def take_batches(self, max_bytes: int) -> list[BatchToRead]:
        """Returns whole fetched batches, up to ``max_bytes``, but at least one if there is any."""
        self.give_back(None)
        with self._positions.lock:
            return self._positions.take_batches(max_bytes)

    def iterate(self, records: list[ConsumedRecord]) -> Iterator[ConsumedRecord]:
        """Returns an iterator over the records. A record that it has not returned yet is not consumed."""
        self._list, self._iterator = records, iter(records)
        return self._iterator

    def _unread(self) -> list[ConsumedRecord]:
        count = length_hint(self._iterator)
        return self._list[-count:] if count else []

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
                key = record.key if self._deserialize_key is None else self._deserialize_key(record.key)
                value = record.value if self._deserialize_value is None else self._deserialize_value(record.value)
            except Exception as error:
                self._raw = [*records[len(done) :], *self._raw]
                if done:
                    return done
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                message = f"the record of {where} could not be deserialized: {error!r}; seek past it to go on"
                raise NotDeserialized(message) from error
            done.append(record._replace(key=key, value=value))
        return done

    # -- consumed records

    def _first_unread(self) -> dict[TopicPartition, ConsumedRecord]:
        """Returns per partition the first record that was taken from the positions, and that the user has not got."""
        first: dict[TopicPartition, ConsumedRecord] = {}
        for record in chain(self._unread(), self._raw):
            first.setdefault(TopicPartition(record.topic, record.partition), record)
        return first

    def position(self, partition: TopicPartition) -> int | None:
        following = self._first_unread().get(partition)
        return self._positions.position(partition) if following is None else following.offset

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets to commit if all records that the user has got are consumed."""
        consumed = self._positions.consumed()
        for partition, record in self._first_unread().items():
            if partition in consumed:
                consumed[partition] = OffsetAndMetadata(record.offset, leader_epoch=record.leader_epoch)
        return consumed

    def lag(self, partition: TopicPartition) -> int | None:
        lag, position = self._positions.lag(partition), self._positions.position(partition)
        now = self.position(partition)
        return None if lag is None or position is None or now is None else lag + position - now

    def give_back(self, partitions: Collection[TopicPartition] | None) -> None:
        """Moves the positions back to the records that the user has got; of all partitions if None is given."""
        for partition, record in self._first_unread().items():
            if (partitions is None or partition in partitions) and partition in self._positions.assignment():
                self._positions.seek(partition, record.offset, record.leader_epoch)
        self.drop(partitions)

    def drop(self, partitions: Collection[TopicPartition] | None) -> None:
        """Drops the records of these partitions that the user has not got. The caller sets the positions."""
        unread = self._unread()
        for _ in self._iterator:  # An iteration that uses the iterator is at its end now.
            pass
        if partitions is None:
            unread, self._raw = [], []
        else:
            unread = [one for one in unread if (one.topic, one.partition) not in partitions]
            self._raw = [one for one in self._raw if (one.topic, one.partition) not in partitions]
        self.iterate(unread)
