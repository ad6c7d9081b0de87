"""What both producers are made of: from a record that is sent to a batch that waits in the accumulator.

``buffer`` is the whole way of most records, and this is where a producer's speed is decided: it runs on the caller's
thread, appends to the batch that its topic fills right now, and wakes nobody. A record that is not plain (it has a key,
a partition, headers, a callback or a timestamp) goes into the open batch of its partition (``buffer_other``). Only
where there is none, or it is full, does a record take the longest way (``try_record``): look at the size, choose a
partition, open a batch there. A record that cannot be
buffered now is a :class:`Blocked`: metadata of its topic is missing, or memory. How to wait is the producer's
(``producer.py`` on the event loop, ``sync_producer.py`` on a thread); then it tries again.

Threads: the accumulator's lock is held while a record is buffered, so ``buffer`` may be called on any thread while the
sender works on its own. Serializers run before, outside of the lock.

Plain records stay with the partition that the sticky partitioner gave (KIP-794) as long as their batch takes them;
what went there is counted when it does not. With another partitioner each record asks it.
"""

from __future__ import annotations

from time import time
from typing import Any, NamedTuple

from headrace.client.config import ProducerConfig
from headrace.client.errors import ClientClosed, RecordTooLarge, UnknownTopic
from headrace.client.metadata import Metadata
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.batch import ProducerBatch, record_bound_bytes
from headrace.client.producer.buffer_pool import BufferPool, LargerThanPool
from headrace.client.producer.delivery import AsyncDelivery, Delivery
from headrace.client.producer.encoded_batch import EncodedBatch
from headrace.client.producer.inputs import GivenHeaders, bytes_of, headers_of, options_of
from headrace.client.producer.partitioner_choice import choose_partitioner
from headrace.client.producer.partitioners import Adaptive
from headrace.client.types import TopicInfo
from headrace.protocol.record_body import Headers
from headrace.runtime.clock import Clock

#: What a plain record takes at most beside its value, if that is below 8 KiB; above, it may be two bytes more.
OVERHEAD_BYTES = 12


class Record(NamedTuple):
    """As the user gave it, but in bytes."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    slot: object


class Blocked(NamedTuple):
    """A record that cannot be buffered now: for want of the topic's metadata, or of ``memory_bytes``."""

    record: Record
    memory_bytes: int = 0


class ProducerCore:
    def __init__(
        self, config: ProducerConfig, metadata: Metadata, clock: Clock, delivery: type[Delivery] | type[AsyncDelivery]
    ) -> None:
        self.config = config
        self.metadata = metadata
        self.clock = clock
        self.pool = BufferPool(config.buffer_memory)
        self.accumulator = Accumulator(options_of(config), self.pool)
        self.partitioner = choose_partitioner(config)
        #: Why records are refused: closed, fenced, no transaction begun, ... Checked on the longer way only: see below.
        self.refusal: Exception | None = None
        #: Whether a batch was closed or opened since, so that the sender is to be woken.
        self.has_news = False
        self._delivery = delivery
        self._lock = self.accumulator.lock
        # `with` costs twice as much as the two calls, a tenth of a record. What it is good for, Ctrl-C between any two
        # instructions, is seen to by asking whether this thread holds the lock.
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._is_sticky = isinstance(self.partitioner, Adaptive)
        self._ignores_keys = config.partitioner_ignore_keys or self.partitioner.ignores_keys
        self._partition_for_key = self.partitioner.partition_for_key
        #: The batch that plain records of a topic go to; a topic that is not here takes the longer way.
        self.filling: dict[str, ProducerBatch] = {}
        #: How much of that batch the partitioner has been told.
        self._counted_bytes: dict[str, int] = {}
        #: The batches that are open, by topic and partition, for records with a key or a partition of their own; as far
        #: as ``_topics_seen`` is the metadata of now.
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
        headers: GivenHeaders,
        slot: object,
    ) -> Any:
        """A delivery, or :class:`Blocked`.

        :raises HeadraceError: if the record is refused.
        """
        if (
            key is None and type(value) is bytes and partition is None and slot is None and timestamp_ms is None
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
        return self.buffer_other(topic, value, key, partition, timestamp_ms, headers, slot)

    def buffer_other(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
        slot: object,
    ) -> Any:
        """As :meth:`buffer`, for what is not plain: still into a batch that is open already, where it goes."""
        if self._serialize_key is not None or self._serialize_value is not None or (timestamp_ms or 0) < 0:
            return self.try_record(self.record(topic, value, key, partition, timestamp_ms, headers, slot))
        pairs = headers_of(headers) if headers else ()
        if (value is None or type(value) is bytes) and (key is None or type(key) is bytes):
            now_ms = int(time() * 1000) if timestamp_ms is None else timestamp_ms
            with self._lock:
                batch = self._open_batch(topic, key, partition)
                if batch is not None and batch.append(now_ms, key, value, pairs, slot):
                    return self._delivery.of(batch, len(batch.values) - 1)
        return self.try_record(self.record(topic, value, key, partition, timestamp_ms, pairs, slot))

    def _open_batch(self, topic: str, key: bytes | None, partition: int | None) -> ProducerBatch | None:
        """The batch that a record goes to, if it is open already."""
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

    def try_record(self, record: Record, reserved_bytes: int = 0) -> Any:
        """As :meth:`buffer`. ``reserved_bytes`` are memory that was waited for; they are used or given back."""
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

    def _append(self, record: Record, reserved_bytes: int) -> Blocked | ProducerBatch:
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
        last_number = accumulator.last_number
        batch = accumulator.append(
            topic, partition, record.key, record.value, record.headers, record.timestamp_ms,
            self.clock.monotonic_ms(), record.slot, reserved_bytes,
        )  # fmt: skip
        if batch is None:
            return Blocked(record, accumulator.memory_for(record.key, record.value, record.headers))
        is_new = accumulator.last_number != last_number
        self.has_news = self.has_news or is_new or (batch.is_full and not batch.is_ripe)
        if is_plain:
            if batch is not self.filling.get(topic):
                self._count(topic, batch, is_new)
        elif batch.is_open:
            self._by_partition.setdefault(topic, [None] * len(info.partitions))[partition] = batch
        return batch

    # --------------------------------------------------------------------------------------------------- partitions

    def _partition_for(self, record: Record, info: TopicInfo, is_plain: bool) -> int:
        count = len(info.partitions)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise UnknownTopic(
                    message=f"{record.topic} has no partition {record.partition}: it has {count}, from 0 on"
                )
            return record.partition
        if not is_plain:
            assert record.key is not None
            return self._partition_for_key(record.topic, record.key, count)
        size_bytes = record_bound_bytes(record.key, record.value, record.headers)
        if self._is_sticky:
            batch = self.filling.get(record.topic)
            if batch is not None and self.accumulator.has_room(record.topic, batch.partition, size_bytes):
                return batch.partition  # with headers, a callback, ... it stays with the plain ones
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
        """The batch that plain records went to takes no more, or not this one: the partitioner may move on."""
        batch = self.filling.pop(topic, None)
        if batch is None:
            return
        written_bytes = batch.used_bytes - self._counted_bytes[topic]
        if batch.is_open and self.accumulator.may_grow(batch):
            batch.is_ripe = True
        elif batch.is_open:
            batch.close()
            self.has_news = True
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
        headers: GivenHeaders,
        slot: object,
    ) -> Record:
        """The record in bytes.

        :raises RecordTooLarge: if no request may hold it.
        """
        if self.refusal is not None:
            raise self.refusal
        key = bytes_of(key, self._serialize_key, "key")
        value = bytes_of(value, self._serialize_value, "value")
        pairs = headers_of(headers) if headers else ()
        size_bytes = record_bound_bytes(key, value, pairs)
        if size_bytes > self.config.max_request_size:
            raise RecordTooLarge(
                message=f"a record of {size_bytes} bytes for {topic} is larger than max.request.size, which is "
                f"{self.config.max_request_size}; raise that, and the topic's max.message.bytes if need be"
            )
        if timestamp_ms is None:
            timestamp_ms = int(time() * 1000)
        elif timestamp_ms < 0:
            raise ValueError(f"timestamp_ms = {timestamp_ms}: a record's time is not before 1970")
        return Record(topic, partition, key, value, pairs, timestamp_ms, slot)

    def append_encoded(self, topic: str, encoded: EncodedBatch, *, reserved_bytes: int = 0) -> ProducerBatch | None:
        """Calls ``Accumulator.append_encoded`` with the lock and the time.

        :return: None if the caller must first reserve ``encoded.size_bytes`` of memory.
        :raises RecordTooLarge: if the batch is larger than ``max.request.size`` or ``buffer.memory``.
        """
        with self._lock:
            if self.refusal is not None:
                if reserved_bytes:
                    self.pool.release(reserved_bytes)
                raise self.refusal
            if encoded.size_bytes > self.config.max_request_size:
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
            self.has_news = self.has_news or batch is not None
            return batch

    # -------------------------------------------------------------------------------------------------------- state

    def refuse(self, reason: Exception | None) -> None:
        """From now on records are refused for a reason; or, with None, taken again."""
        with self._lock:
            self.refusal = reason
            self._by_partition.clear()
            for topic in list(self.filling):
                self._leave_batch(topic)

    def close(self) -> None:
        self.refuse(ClientClosed("the producer is closed"))
        with self._lock:
            self.accumulator.is_closed = True
