"""Puts records into the accumulator, for both producers.

There are three paths, and the first decides the speed of a producer:

1. ``buffer`` handles most records. It runs on the caller's thread, appends a plain record (a value and nothing else) to
   the batch that its topic fills now, and wakes nobody.
2. ``buffer_other`` handles a record with a key, a partition, headers, a callback or a timestamp. It appends the record
   to the open batch of its partition.
3. ``append_record`` handles a record whose partition has no open batch, or only a full one. It checks the size, chooses
   a partition and opens a batch.

A record that cannot be buffered now comes back as :class:`Blocked`: the metadata of its topic is missing, or memory.
Each producer waits in its own way (``async_producer.py`` on the event loop, ``sync_producer.py`` on a thread) and tries
again.

Threads: the accumulator's lock is held while a record is buffered, so any thread may call ``buffer`` while the sender
works on its own thread. Serializers run before that, without the lock.

Plain records stay with the partition that the sticky partitioner chose (KIP-794) as long as their batch takes them. The
partitioner gets the number of bytes when the batch takes no more. Any other partitioner is asked for each record.
"""

from __future__ import annotations

from time import time
from typing import Any, NamedTuple

from headrace.client.config import ProducerConfig
from headrace.client.encoded_batch import EncodedBatch
from headrace.client.errors import ClientClosed, RecordTooLarge, UnknownTopic
from headrace.client.metadata import Metadata
from headrace.client.partitioners.choice import choose_partitioner
from headrace.client.partitioners.strategies import Adaptive
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.accumulator_options import AccumulatorOptions
from headrace.client.producer.batch import ProducerBatch, record_bound_bytes
from headrace.client.producer.buffer_pool import BufferPool, LargerThanPool
from headrace.client.producer.delivery import AsyncDelivery, Delivery
from headrace.client.producer.record import ProducerRecord
from headrace.client.producer.serialization import HeadersInput, to_bytes, to_headers
from headrace.client.types import TopicInfo
from headrace.runtime.clock import Clock

#: The most bytes that a plain record takes in addition to its value. A value of 8 KiB or more may take two bytes more.
OVERHEAD_BYTES = 12


class Blocked(NamedTuple):
    """A record that cannot be buffered now, because the topic's metadata or ``memory_bytes`` of memory are missing."""

    record: ProducerRecord
    memory_bytes: int = 0


class RecordBuffer:
    """Appends records to batches, under the accumulator's lock."""

    def __init__(
        self, config: ProducerConfig, metadata: Metadata, clock: Clock, delivery: type[Delivery] | type[AsyncDelivery]
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.clock = clock
        self.pool = BufferPool(config.buffer_memory)
        self.accumulator = Accumulator(AccumulatorOptions.of(config), self.pool)
        self.partitioner = choose_partitioner(config)
        #: The reason why records are refused: closed, fenced, no transaction begun, ... Only the slower paths check it,
        #: because :meth:`refuse` closes all batches that the fast path uses.
        self.refusal: Exception | None = None
        #: Whether a batch was opened or closed, so that the sender has something to do.
        self.must_wake_sender = False
        self._delivery = delivery
        self._lock = self.accumulator.lock
        # A `with` statement costs twice as much as these two calls, which is a tenth of the cost of a record. It would
        # protect against a KeyboardInterrupt between any two instructions; `release_if_held` does that instead.
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._is_sticky = isinstance(self.partitioner, Adaptive)
        self._ignores_keys = config.partitioner_ignore_keys or self.partitioner.ignores_keys
        self._partition_for_key = self.partitioner.partition_for_key
        #: The batch that plain records of a topic go to. A topic that is not here takes a slower path.
        self.filling: dict[str, ProducerBatch] = {}
        #: The number of bytes of that batch that the partitioner knows of.
        self._counted_bytes: dict[str, int] = {}
        #: The open batches by topic and partition, for records with a key or a partition. Valid while ``_topics_seen``
        #: is the current metadata.
        self._by_partition: dict[str, list[ProducerBatch | None]] = {}
        self._topics_seen: object = None
        self._serialize_key = config.key_serializer
        self._serialize_value = config.value_serializer
        self._is_plain = self._is_sticky and not (config.key_serializer or config.value_serializer)

    # ---------------------------------------------------------------------------------------------------- buffering

    def buffer(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput,
        on_delivery: object,
    ) -> Any:
        """Appends a record, and returns its delivery or :class:`Blocked`.

        :raises HeadraceError: if the record is refused.
        """
        if (
            key is None and type(value) is bytes and partition is None and on_delivery is None and timestamp_ms is None
            and not headers
        ):  # fmt: skip
            try:
                self._acquire()
                batch = self.filling.get(topic)
                if batch is not None:
                    used_bytes = batch.used_bytes + len(value) + OVERHEAD_BYTES
                    if used_bytes <= batch.plain_limit_bytes:
                        batch.used_bytes = used_bytes
                        values = batch.values
                        delivery = self._delivery()
                        delivery._batch = batch
                        delivery._index = index = len(values)
                        values.append(value)
                        now_s = time()
                        if not batch.fresh_from_s <= now_s < batch.fresh_until_s:
                            batch.add_time(index, int(now_s * 1000))
                        self._release()
                        return delivery
                self._release()
            except BaseException:
                self.release_if_held()
                raise
        return self.buffer_other(topic, value, key, partition, timestamp_ms, headers, on_delivery)

    def buffer_other(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput,
        on_delivery: object,
    ) -> Any:
        """Does the same as :meth:`buffer` for a record that is not plain."""
        if self._serialize_key is not None or self._serialize_value is not None or (timestamp_ms or 0) < 0:
            return self.append_record(self.record(topic, value, key, partition, timestamp_ms, headers, on_delivery))
        pairs = to_headers(headers) if headers else ()
        if (value is None or type(value) is bytes) and (key is None or type(key) is bytes):
            now_ms = int(time() * 1000) if timestamp_ms is None else timestamp_ms
            with self._lock:
                batch = self._open_batch(topic, key, partition)
                if batch is not None and batch.append(now_ms, key, value, pairs, on_delivery):
                    return self._delivery.of(batch, len(batch.values) - 1)
        return self.append_record(self.record(topic, value, key, partition, timestamp_ms, pairs, on_delivery))

    def _open_batch(self, topic: str, key: bytes | None, partition: int | None) -> ProducerBatch | None:
        """Returns the open batch that a record goes to, if there is one."""
        if key is None and partition is None:
            batch = self.filling.get(topic)
            return batch if batch is not None and batch.is_open else None
        if self._topics_seen is not self.metadata.topics:
            self._topics_seen = self.metadata.topics
            self._by_partition.clear()
        batches = self._by_partition.get(topic)
        if batches is None or (partition is None and self._ignores_keys):
            return None
        if partition is None:
            assert key is not None
            partition = self._partition_for_key(topic, key, len(batches))
        batch = batches[partition] if 0 <= partition < len(batches) else None
        return batch if batch is not None and batch.is_open else None

    def release_if_held(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()

    def append_record(self, record: ProducerRecord, reserved_bytes: int = 0) -> Any:
        """Does the same as :meth:`buffer` by the longest path.

        :param reserved_bytes: memory that the caller has waited for. It is used, or given back.
        """
        try:
            with self._lock:
                blocked_or_batch = self._append(record, reserved_bytes)
                if isinstance(blocked_or_batch, ProducerBatch):
                    return self._delivery.of(blocked_or_batch, blocked_or_batch.record_count - 1)
                return blocked_or_batch
        except LargerThanPool as error:
            raise RecordTooLarge(
                message=f"a record for {record.topic} does not fit into buffer.memory: {error}"
            ) from None

    def _append(self, record: ProducerRecord, reserved_bytes: int) -> Blocked | ProducerBatch:
        accumulator, topic = self.accumulator, record.topic
        info = self.metadata.topics.get(topic)
        if self.refusal is not None or info is None or not info.partitions:
            if reserved_bytes:
                self.pool.release(reserved_bytes)
            if self.refusal is not None:
                raise self.refusal
            return Blocked(record)
        is_plain = record.partition is None and (record.key is None or self._ignores_keys)
        partition = self._partition_for(record, info, is_plain)
        last_number = accumulator.unfinished.last_number
        batch = accumulator.append(record, partition, self.clock.monotonic_ms(), reserved_bytes)
        if batch is None:
            return Blocked(record, accumulator.memory_for(record))
        is_new = accumulator.unfinished.last_number != last_number
        self.must_wake_sender = self.must_wake_sender or is_new or (batch.is_full and not batch.is_sendable)
        if is_plain:
            if batch is not self.filling.get(topic):
                self._count(topic, batch, is_new)
        elif batch.is_open:
            self._by_partition.setdefault(topic, [None] * len(info.partitions))[partition] = batch
        return batch

    # --------------------------------------------------------------------------------------------------- partitions

    def _partition_for(self, record: ProducerRecord, info: TopicInfo, is_plain: bool) -> int:
        count = len(info.partitions)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise UnknownTopic(
                    message=f"the topic {record.topic} has no partition {record.partition}, only 0 to {count - 1}"
                )
            return record.partition
        if not is_plain:
            assert record.key is not None
            return self._partition_for_key(record.topic, record.key, count)
        size_bytes = record_bound_bytes(record.key, record.value, record.headers)
        if self._is_sticky:
            batch = self.filling.get(record.topic)
            if batch is not None and self.accumulator.has_room(record.topic, batch.partition, size_bytes):
                return batch.partition  # A record with headers or a callback goes to the batch of the plain records.
            self._leave_batch(record.topic)
        available = [partition.partition for partition in info.partitions if partition.leader_id >= 0]
        partition = self.partitioner.partition(record.topic, count, available)
        if (
            not self._is_sticky
            and not self.accumulator.has_room(record.topic, partition, size_bytes)
            and self.partitioner.on_batch_done(record.topic, partition, count, available)
        ):
            partition = self.partitioner.partition(record.topic, count, available)
        return partition

    def _leave_batch(self, topic: str) -> None:
        """Ends the batch that plain records went to, and lets the partitioner choose another partition."""
        batch = self.filling.pop(topic, None)
        if batch is None:
            return
        written_bytes = batch.used_bytes - self._counted_bytes[topic]
        if batch.is_open and self.accumulator.may_grow(batch):
            batch.is_sendable = True
        elif batch.is_open:
            batch.close()
            self.must_wake_sender = True
        self.partitioner.on_appended(topic, max(0, written_bytes), is_batch_done=True)

    def _count(self, topic: str, batch: ProducerBatch, is_new: bool) -> None:
        if self._is_plain and batch.is_open:
            self.filling[topic] = batch
            self._counted_bytes[topic] = 0 if is_new else batch.used_bytes
        else:
            size_bytes = batch.used_bytes // max(1, batch.record_count)
            self.partitioner.on_appended(topic, size_bytes, is_batch_done=batch.is_full)

    # ------------------------------------------------------------------------------------------------------ records

    def record(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput,
        on_delivery: object,
    ) -> ProducerRecord:
        """Makes a record whose key, value and headers are bytes.

        :raises RecordTooLarge: if the record is larger than ``max.request.size``.
        """
        if self.refusal is not None:
            raise self.refusal
        key = to_bytes(key, self._serialize_key, "key")
        value = to_bytes(value, self._serialize_value, "value")
        pairs = to_headers(headers) if headers else ()
        size_bytes = record_bound_bytes(key, value, pairs)
        if size_bytes > self.config.max_request_size:
            raise RecordTooLarge(
                message=f"a record of {size_bytes} bytes for {topic} is larger than max.request.size, which is "
                f"{self.config.max_request_size}; raise it, and the topic's max.message.bytes if necessary"
            )
        if timestamp_ms is None:
            timestamp_ms = int(time() * 1000)
        elif timestamp_ms < 0:
            raise ValueError(f"timestamp_ms = {timestamp_ms}: the timestamp of a record must not be negative")
        return ProducerRecord(topic, partition, key, value, pairs, timestamp_ms, on_delivery)

    def append_encoded(self, topic: str, encoded: EncodedBatch, *, reserved_bytes: int = 0) -> ProducerBatch | None:
        """Appends a whole batch that is encoded already. Returns None if ``encoded.size_bytes`` bytes are not free.

        :return: None if the caller must first reserve ``encoded.size_bytes`` of memory.
        :raises RecordTooLarge: if the batch is larger than ``max.request.size`` or ``buffer.memory``.
        """
        with self._lock:
            if self.refusal is not None:
                if reserved_bytes:
                    self.pool.release(reserved_bytes)
                raise self.refusal
            if len(encoded.body) > self.config.max_request_size:
                raise RecordTooLarge(
                    message=f"an encoded batch of {encoded.size_bytes} bytes for {topic}-{encoded.partition} is larger "
                    f"than max.request.size, which is {self.config.max_request_size}"
                )
            try:
                batch = self.accumulator.append_encoded(
                    topic, encoded, self.clock.monotonic_ms(), reserved_bytes=reserved_bytes
                )
            except LargerThanPool as error:
                raise RecordTooLarge(
                    message=f"an encoded batch for {topic} does not fit into buffer.memory: {error}"
                ) from None
            self.must_wake_sender = self.must_wake_sender or batch is not None
            return batch

    # -------------------------------------------------------------------------------------------------------- state

    def refuse(self, reason: Exception | None) -> None:
        """Refuses records from now on, with this error. None accepts records again."""
        with self._lock:
            self.refusal = reason
            self._by_partition.clear()
            for topic in list(self.filling):
                self._leave_batch(topic)

    def close(self) -> None:
        self.refuse(ClientClosed("the producer is closed"))
        with self._lock:
            self.accumulator.is_closed = True
