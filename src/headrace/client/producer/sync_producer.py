"""The producer for programs without an event loop.

::

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = producer.send("orders", b"...", key=b"42")       # buffered
        metadata = delivery.result(timeout=10)                       # acknowledged
        producer.send("orders", b"...", on_delivery=print)           # or by a callback
        producer.flush()

``send`` appends the record on the caller's own thread, under the lock of the accumulator. The sender runs on the thread
that all blocking clients of the process share (``background.py``). ``send`` wakes it only when a batch is full or a
partition gets its first record. So a record costs about a microsecond. Many threads may use one producer at once.

All other methods run the method of :class:`AsyncProducer` with the same name, on that shared thread. ``on_delivery``
callbacks run there too: they must not wait for this producer, and a slow callback delays all clients of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from headrace.client import background
from headrace.client.config import ProducerConfig
from headrace.client.errors import ClientClosed
from headrace.client.metrics.registry import Metrics
from headrace.client.producer.async_producer import AsyncProducer, buffer_exhausted
from headrace.client.producer.buffer_pool import Wait, WaitState
from headrace.client.producer.delivery import Delivery, OnDelivery
from headrace.client.producer.record_buffer import OVERHEAD_BYTES, Blocked
from headrace.client.producer.serialization import HeadersInput
from headrace.client.retry import Deadline
from headrace.client.transactions.coordinator_requests import Offsets
from headrace.client.transactions.manager import GroupOrName, TransactionManager
from headrace.client.types import PartitionInfo, RecordMetadata

if TYPE_CHECKING:
    from headrace.client.arrow.tables import BlockingArrowDelivery

#: How long a program that did not close its producers waits at its end until their buffered records are sent.
_AT_EXIT_S = 5.0
#: A thread that waits for memory waits for the memory of this many batches.
_BATCHES_PER_WAIT = 32


class _ThreadedProducer(AsyncProducer):
    """An asyncio producer whose deliveries are for threads."""

    _delivery_class = Delivery


class Producer:
    """Sends records to topics. Blocks while it waits; see :class:`AsyncProducer` for asyncio.

    Options are those of ``ProducerConfig``: as keywords, or by Kafka's names in ``config``. The constructor connects to
    the cluster. ``close`` sends the buffered records and disconnects, and so does the end of a ``with`` block.
    """

    def __init__(self, config: Mapping[str, object] | None = None, **options: Any) -> None:
        """
        :param config: options by Kafka's names, ``{"linger.ms": 20}``.
        :param options: options by Python's names, ``bootstrap_servers="127.0.0.1:9092"``.
        :raises BrokerUnreachable: if no broker answers within ``max.block.ms``.
        """
        self._producer = _ThreadedProducer(config, **options)
        self._background = background.current()
        self._background.run(self._producer.start())
        self._record_buffer = self._producer.record_buffer
        self._filling = self._record_buffer.filling
        lock = self._record_buffer.accumulator.lock
        self._acquire, self._release = lock.acquire, lock.release
        self._release_if_held = self._record_buffer.release_if_held
        self._wake = self._producer.sender.wake_from_thread
        self._is_closed = False
        self._background.register(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._producer.summary()}>"

    @property
    def config(self) -> ProducerConfig:
        return self._producer.config

    def metrics(self) -> Metrics:
        """Returns the metrics of the producer; see :meth:`AsyncProducer.metrics`. It does not wait."""
        return self._producer.metrics()

    def client_instance_id(self, *, timeout_ms: float | None = None) -> UUID:
        """Returns the id under which a broker stores the metrics of this client; see docs/clients.md, telemetry."""
        return self._run(self._producer.client_instance_id(timeout_ms=timeout_ms))  # type: ignore[no-any-return]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(None if kind is None else self.config.request_timeout_ms / 1000)

    def close(self, timeout: float | None = None) -> None:
        """Sends the buffered records, waits for the answers, and disconnects.

        An open transaction is not ended: the coordinator aborts it after ``transaction.timeout.ms``.

        :param timeout: in seconds. Records that are not delivered by then fail. None waits without a limit.
        """
        if not self._is_closed:
            self._is_closed = True
            self._background.run(self._producer.close(None if timeout is None else timeout * 1000))

    def on_program_end(self) -> None:
        """The program ends without closing the producer. The buffered records are sent, if that takes a short time."""
        self.close(_AT_EXIT_S)

    def on_fork(self) -> None:
        """In a child process the producer refuses records. The parent process sends what is buffered."""
        self._record_buffer.accumulator.lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
        self._record_buffer.refuse(
            ClientClosed("this producer was made before a fork; make another one in the child process")
        )
        self._is_closed = True

    # ------------------------------------------------------------------------------------------------------ sending

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersInput = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Buffers a record. It is sent together with other records of its partition.

        :param value: bytes, or an object for ``value_serializer``. None deletes the key from a compacted topic.
        :param key: bytes, or an object for ``key_serializer``. Records with one key go to one partition.
        :param partition: the partition. Without it, the partitioner chooses.
        :param timestamp_ms: milliseconds since 1970. Without it, the current time.
        :param headers: a dict, or pairs, of strings and bytes.
        :param on_delivery: called with the metadata and None, or with None and the error.
        :return: a delivery. ``delivery.result(timeout)`` waits and returns the record's metadata, or raises the reason
            why the record was not delivered.
        :raises HeadraceError: as :meth:`AsyncProducer.send` does.
        """
        # This repeats the fast path of RecordBuffer.buffer, because a call costs a tenth of a record.
        if (
            key is None and type(value) is bytes and partition is None and on_delivery is None and timestamp_ms is None
            and not headers
        ):  # fmt: skip
            try:
                self._acquire()
                batch = self._filling.get(topic)
                if batch is not None:
                    used_bytes = batch.used_bytes + len(value) + OVERHEAD_BYTES
                    if used_bytes <= batch.plain_limit_bytes:
                        batch.used_bytes = used_bytes
                        values = batch.values
                        delivery = Delivery()
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
                self._release_if_held()
                raise
        buffer = self._record_buffer
        result = buffer.buffer_other(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if buffer.must_wake_sender or result.__class__ is Blocked:
            result = self._finish_send(result)
        return result  # type: ignore[no-any-return]

    def send_and_wait(self, topic: str, value: Any = None, **options: Any) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged. Takes the options of :meth:`send`."""
        return self.send(topic, value, **options).result()

    def flush(self, timeout: float | None = None) -> None:
        """Sends all buffered records without waiting for ``linger.ms``, and waits until each is delivered or failed.

        :param timeout: in seconds.
        :raises KafkaTimeout: if the timeout passes first.
        """
        self._run(self._producer.flush(), timeout)

    def partitions_of(self, topic: str) -> list[PartitionInfo]:
        """Returns the partitions of a topic. Waits for metadata for at most ``max.block.ms``."""
        return self._run(self._producer.partitions_of(topic))  # type: ignore[no-any-return]

    def send_arrow(self, topic: str, table: object, *, partition: int | None = None) -> BlockingArrowDelivery:
        """Buffers the rows of a pyarrow, pandas or polars table; see :meth:`AsyncProducer.send_arrow`.

        :return: a delivery. ``delivery.result(timeout)`` waits until all rows are acknowledged, and returns the offsets
            per partition.
        """
        from headrace.client.arrow.tables import BlockingArrowDelivery

        return BlockingArrowDelivery(self._run(self._producer.send_arrow(topic, table, partition=partition)), self._run)

    # -- transactions

    def init_transactions(self) -> None:
        """Takes over the ``transactional.id``. Call it once, before the first transaction.

        An older producer with the same id is fenced, and the transaction that it left open is aborted.
        """
        self._run(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        """Begins a transaction. The records that are sent from now on belong to it.

        :raises ProducerFenced: if another producer with the same ``transactional.id`` has taken over.
        """
        self._run(self._producer.begin_transaction())

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupOrName) -> None:
        """Adds a consumer's offsets to the transaction. They are committed together with the records, or not at all.

        :param offsets: the offset of the next record to read, by partition.
        :param group: ``consumer.group_metadata()``, or the name of the group.
        """
        self._run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Waits until all records of the transaction are acknowledged, and commits it.

        :raises HeadraceError: if a record failed. Then call :meth:`abort_transaction`.
        """
        self._run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """Drops the records that were not sent yet, and aborts the transaction."""
        self._run(self._producer.abort_transaction())

    @property
    def transactions(self) -> TransactionManager:
        """The producer's transactions, which live on the event loop's thread.

        :raises ValueError: if the producer has no ``transactional_id``.
        """
        return self._producer.transactions

    # -- waiting

    def _run(self, coroutine: Any, timeout: float | None = None) -> Any:
        if self._is_closed:
            coroutine.close()
            raise ClientClosed("the producer is closed")
        return self._background.run(coroutine, timeout)

    def _finish_send(self, result: Any) -> Any:
        if isinstance(result, Blocked):
            result = self._unblock(result)
        if self._record_buffer.must_wake_sender:
            self._record_buffer.must_wake_sender = False
            self._wake()
        return result

    def _unblock(self, blocked: Blocked) -> Delivery:
        """Waits for the metadata or the memory that a record needs, and buffers the record."""
        if self._background.is_this_thread:
            raise RuntimeError(
                "send() must wait for memory or metadata, and an on_delivery callback must not wait; send from a thread"
            )
        deadline = Deadline(self._record_buffer.clock, self.config.max_block_ms)
        result: Any = blocked
        while isinstance(result, Blocked):
            if result.memory_bytes:
                memory_bytes = result.memory_bytes
                self._wait_for_memory(memory_bytes, deadline)
                result = self._record_buffer.append_record(result.record, memory_bytes)
            else:
                with self._producer.sender.metrics.method_times.measure("metadata_wait"):
                    self._run(self._producer.partitions_of(result.record.topic))
                result = self._record_buffer.append_record(result.record)
        return result  # type: ignore[no-any-return]

    def _wait_for_memory(self, size_bytes: int, deadline: Deadline) -> None:
        """Waits for memory, and for more memory than is needed now.

        Otherwise each delivered batch would wake the thread, which would fill one batch and wait again. A wake-up costs
        as much as dozens of records. The memory that is not needed goes back to the pool at once, for the next records.
        """
        pool, lock = self._record_buffer.pool, self._record_buffer.accumulator.lock
        asked_bytes = max(size_bytes, min(_BATCHES_PER_WAIT * self.config.batch_size, pool.total_bytes // 4))
        ended = threading.Event()

        def on_end(_: Wait) -> None:
            ended.set()

        with lock:
            wait = pool.wait(asked_bytes, on_end)
        self._record_buffer.must_wake_sender = False
        self._wake()
        kept_bytes = 0
        try:
            with self._producer.sender.metrics.method_times.measure("memory_wait"):
                if ended.wait(deadline.left_ms() / 1000):
                    kept_bytes = size_bytes
        finally:  # After a KeyboardInterrupt too, memory that was granted must not be lost.
            with lock:
                if wait.state is WaitState.GRANTED:
                    pool.release(asked_bytes - kept_bytes)
                pool.cancel(wait)
        if not kept_bytes:
            raise buffer_exhausted(self._producer.sender)
