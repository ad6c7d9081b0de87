"""The producer for asyncio programs.

::

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"...", key=b"42")   # buffered
        metadata = await delivery                                      # acknowledged
        await producer.send_and_wait("orders", b"...")                 # both in one call

``send`` returns once the record is buffered. It waits only while the topic's metadata is missing or ``buffer.memory``
is full, for at most ``max.block.ms``. The delivery that it returns may be awaited at once, later or never: the record
is sent anyway. ``flush`` waits for all records that were sent so far.

All methods belong to the event loop on which ``start`` ran. ``sync_producer.Producer`` is the producer for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import BufferExhausted, ClientClosed, KafkaTimeout
from headrace.client.metrics.connections import ConnectionMetrics
from headrace.client.metrics.registry import Metrics, new_registry
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.buffer_pool import Wait, WaitState
from headrace.client.producer.delivery import AsyncDelivery, Delivery, OnDelivery
from headrace.client.producer.producer_metrics import ProducerMetrics
from headrace.client.producer.record_buffer import Blocked, RecordBuffer
from headrace.client.producer.sender import Sender
from headrace.client.producer.serialization import HeadersInput
from headrace.client.retry import Deadline
from headrace.client.telemetry.labels import producer_labels
from headrace.client.telemetry.telemetry import Telemetry
from headrace.client.transactions.coordinator_requests import Offsets
from headrace.client.transactions.manager import GroupOrName, TransactionManager
from headrace.client.types import PartitionInfo, RecordMetadata
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.client.arrow.tables import ArrowDelivery
    from headrace.client.encoded_batch import EncodedBatch

#: A program that only sends would never let other tasks run, the sender among them. So ``send`` yields to the event
#: loop after this many records or batches, which is every few milliseconds.
_SENDS_PER_PAUSE, _BATCHES_PER_PAUSE = 2048, 8


class AsyncProducer:
    """Sends records to topics.

    Options are those of ``ProducerConfig``: as keywords, or by Kafka's names in ``config``. ``start`` connects to the
    cluster. ``close`` sends the buffered records and disconnects. ``async with`` does both.
    """

    #: The class of the deliveries. The blocking producer has another.
    _delivery_class: type[AsyncDelivery] | type[Delivery] = AsyncDelivery
    _record_buffer: RecordBuffer
    _sender: Sender
    _telemetry: Telemetry

    def __init__(
        self, config: Mapping[str, object] | None = None, *, clock: Clock | None = None, **options: object
    ) -> None:
        """
        :param config: options by Kafka's names, ``{"linger.ms": 20}``.
        :param options: options by Python's names, ``bootstrap_servers="127.0.0.1:9092"``.
        """
        self.config = ProducerConfig.load(config, **options)
        self._clock = clock
        self._registry = new_registry("producer", self.config, clock)
        self._cluster: Cluster | None = None
        self._transactions: TransactionManager | None = None
        self._is_closed = False
        self._since_pause = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.summary()}>"

    def summary(self) -> str:
        """The brokers and the state of the producer, for ``repr``."""
        state = "closed" if self._is_closed else "not started" if self._cluster is None else "open"
        return f"for {', '.join(self.config.bootstrap_servers)}, {state}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        # After an exception, the wait for the buffered records is short: the broker may be the cause.
        await self.close(None if kind is None else self.config.request_timeout_ms)

    async def start(self) -> None:
        """Connects to the cluster.

        :raises BrokerUnreachable: if no broker answers within ``max.block.ms``.
        """
        assert self._cluster is None, "a producer is started once"
        connections = ConnectionMetrics(self._registry)
        cluster = Cluster(self.config, clock=self._clock, metrics=connections)
        self._telemetry = Telemetry(cluster, self._registry, lambda: producer_labels(self.config))
        try:
            await cluster.start()
        except BaseException:
            await self._telemetry.close()
            await cluster.close()
            raise
        self._cluster = cluster
        self._record_buffer = RecordBuffer(self.config, cluster.metadata, cluster.clock, self._delivery_class)
        if self.config.transactional_id is not None:
            self._transactions = TransactionManager(self.config, cluster, self._record_buffer)
        self._sender = Sender(
            self.config,
            cluster,
            self._record_buffer.accumulator,
            self._record_buffer.partitioner,
            transaction=self._transactions,
            metrics=ProducerMetrics(self._registry, connections),
        )
        self._sender.metrics.publish(cluster.metadata, self._record_buffer.pool, self._sender.in_flight)
        if self._transactions is not None:
            self._transactions.sender = self._sender
        self._sender.wake()

    def metrics(self) -> Metrics:
        """Returns the metrics of the producer, under the names of Java's producer; see docs/client-metrics.md."""
        return self._registry.metrics()

    async def client_instance_id(self, *, timeout_ms: float | None = None) -> UUID:
        """Returns the id under which a broker stores the metrics of this client; see docs/clients.md, telemetry."""
        self._check_open()
        return await self._telemetry.client_instance_id(timeout_ms)

    @property
    def record_buffer(self) -> RecordBuffer:
        """The buffer of the producer's records, once the producer is started."""
        return self._record_buffer

    @property
    def sender(self) -> Sender:
        """The sender of the buffered records, once the producer is started."""
        return self._sender

    async def close(self, timeout_ms: float | None = None) -> None:
        """Sends the buffered records, waits for the answers, and disconnects.

        An open transaction is not ended: the coordinator aborts it after ``transaction.timeout.ms``.

        :param timeout_ms: how long to wait. Records that are not delivered by then fail. None waits without a limit.
        """
        if self._cluster is None or self._is_closed:
            self._is_closed = True
            return
        self._is_closed = True
        self._record_buffer.close()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._sender.flush()
        except TimeoutError:
            pass
        finally:
            self._sender.drop(ClientClosed("the producer was closed before the record was delivered"))
            await self._sender.stop()
            await self._telemetry.close()
            await self._cluster.close()
            self._sender.drop(ClientClosed("the producer was closed before the broker answered"), in_flight=True)

    # ------------------------------------------------------------------------------------------------------ sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersInput = (),
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Buffers a record. It is sent together with other records of its partition.

        :param value: bytes, or an object for ``value_serializer``. None deletes the key from a compacted topic.
        :param key: bytes, or an object for ``key_serializer``. Records with one key go to one partition.
        :param partition: the partition. Without it, the partitioner chooses.
        :param timestamp_ms: milliseconds since 1970. Without it, the current time.
        :param headers: a dict, or pairs, of strings and bytes.
        :param on_delivery: called with the metadata and None, or with None and the error.
        :return: a delivery. Awaiting it returns the record's :class:`RecordMetadata`, or raises the reason why the
            record was not delivered.
        :raises BufferExhausted: if ``buffer.memory`` stays full for ``max.block.ms``.
        :raises UnknownTopic: if the topic or the partition does not exist, and is not created within ``max.block.ms``.
        :raises RecordTooLarge: if the record is larger than ``max.request.size``.
        :raises ClientClosed: if the producer is closed.
        """
        buffer = self._record_buffer
        delivery = buffer.buffer(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery.__class__ is Blocked:
            delivery = await self._unblock(delivery)
        self._since_pause += 1
        if buffer.must_wake_sender:
            buffer.must_wake_sender = False
            self._sender.wake()
            self._since_pause += _SENDS_PER_PAUSE // _BATCHES_PER_PAUSE
        if self._since_pause >= _SENDS_PER_PAUSE:
            self._since_pause = 0
            await asyncio.sleep(0)
        return delivery  # type: ignore[no-any-return]

    async def send_and_wait(self, topic: str, value: Any = None, **options: Any) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged. Takes the options of :meth:`send`."""
        return await (await self.send(topic, value, **options))

    async def flush(self) -> None:
        """Sends all buffered records without waiting for ``linger.ms``, and waits until each is delivered or failed."""
        self._check_open()
        with self._sender.metrics.method_times.measure("flush"):
            await self._sender.flush()

    async def partitions_of(self, topic: str) -> list[PartitionInfo]:
        """Returns the partitions of a topic. Waits for metadata for at most ``max.block.ms``."""
        return await self._open_cluster().partitions_of(topic, timeout_ms=self.config.max_block_ms)

    async def send_arrow(self, topic: str, table: object, *, partition: int | None = None) -> ArrowDelivery:
        """Buffers the rows of a pyarrow, pandas or polars table, without a Python object per row.

        The table has the column value, and optionally key, partition, timestamp and headers; ``arrow/writing.py``
        lists their types. Serializers are not used. Needs ``headrace[arrow]``.

        :param partition: the partition of all rows.
        :return: a delivery. Awaiting it returns the offsets per partition, once all rows are acknowledged.
        :raises ValueError: if the table has other columns or types. Then nothing is sent.
        """
        from headrace.client.arrow.tables import send_arrow

        self._check_open()
        return await send_arrow(self, topic, table, partition=partition)

    async def send_encoded(self, topic: str, encoded: EncodedBatch) -> ProducerBatch:
        """Buffers a whole batch that is encoded already. Waits for memory if necessary.

        ``AsyncDelivery.of(batch, index)`` is the delivery of one of its records.
        """
        self._check_open()
        batch = self._record_buffer.append_encoded(topic, encoded)
        if batch is None:
            deadline = Deadline(self._record_buffer.clock, self.config.max_block_ms)
            await self._wait_for_memory(encoded.size_bytes, deadline)
            batch = self._record_buffer.append_encoded(topic, encoded, reserved_bytes=encoded.size_bytes)
            assert batch is not None
        self._record_buffer.must_wake_sender = False
        self._sender.wake()
        await asyncio.sleep(0)
        return batch

    # -- transactions

    async def init_transactions(self) -> None:
        """Takes over the ``transactional.id``. Call it once, before the first transaction.

        An older producer with the same id is fenced, and the transaction that it left open is aborted.
        """
        transactions = self.transactions
        with self._sender.metrics.method_times.measure("txn_init"):
            await transactions.init()

    async def begin_transaction(self) -> None:
        """Begins a transaction. The records that are sent from now on belong to it.

        :raises ProducerFenced: if another producer with the same ``transactional.id`` has taken over.
        """
        transactions = self.transactions
        with self._sender.metrics.method_times.measure("txn_begin"):
            transactions.begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupOrName) -> None:
        """Adds a consumer's offsets to the transaction. They are committed together with the records, or not at all.

        :param offsets: the offset of the next record to read, by partition.
        :param group: ``consumer.group_metadata()``, or the name of the group.
        """
        transactions = self.transactions
        with self._sender.metrics.method_times.measure("txn_offsets"):
            await transactions.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Waits until all records of the transaction are acknowledged, and commits it.

        :raises HeadraceError: if a record failed. Then call :meth:`abort_transaction`.
        """
        transactions = self.transactions
        with self._sender.metrics.method_times.measure("txn_commit"):
            await transactions.commit()

    async def abort_transaction(self) -> None:
        """Drops the records that were not sent yet, and aborts the transaction."""
        transactions = self.transactions
        with self._sender.metrics.method_times.measure("txn_abort"):
            await transactions.abort()

    @property
    def transactions(self) -> TransactionManager:
        """The producer's transactions.

        :raises ValueError: if the producer has no ``transactional_id``.
        """
        self._check_open()
        if self._transactions is None:
            raise ValueError("transactions need the option transactional_id")
        return self._transactions

    # -- waiting

    async def _unblock(self, blocked: Blocked) -> AsyncDelivery:
        """Waits for the metadata or the memory that a record needs, and buffers the record."""
        cluster = self._open_cluster()
        deadline = Deadline(self._record_buffer.clock, self.config.max_block_ms)
        result: Any = blocked
        while isinstance(result, Blocked):
            if result.memory_bytes:
                memory_bytes = result.memory_bytes
                await self._wait_for_memory(memory_bytes, deadline)
                result = self._record_buffer.append_record(result.record, memory_bytes)
            else:
                with self._sender.metrics.method_times.measure("metadata_wait"):
                    await cluster.partitions_of(result.record.topic, timeout_ms=deadline.left_ms())
                result = self._record_buffer.append_record(result.record)
        return result  # type: ignore[no-any-return]

    async def _wait_for_memory(self, size_bytes: int, deadline: Deadline) -> None:
        pool, lock = self._record_buffer.pool, self._record_buffer.accumulator.lock
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def on_end(_: Wait) -> None:
            if not ended.done():
                ended.set_result(None)

        with lock:
            wait = pool.wait(size_bytes, on_end)
        self._sender.wake()
        try:
            with self._sender.metrics.method_times.measure("memory_wait"):
                async with asyncio.timeout(deadline.left_ms() / 1000):
                    await ended
        except TimeoutError:
            pass
        except BaseException:  # Cancelled: memory that was granted must not be lost.
            with lock:
                if wait.state is WaitState.GRANTED:
                    pool.release(size_bytes)
                pool.cancel(wait)
            raise
        with lock:
            is_granted = wait.state is WaitState.GRANTED
            pool.cancel(wait)
        if not is_granted:
            raise buffer_exhausted(self._sender)

    def _open_cluster(self) -> Cluster:
        self._check_open()
        assert self._cluster is not None
        return self._cluster

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed")
        if self._cluster is None:
            raise ClientClosed("the producer is not started: use it with `async with`, or call start()")


def buffer_exhausted(sender: Sender) -> KafkaTimeout:
    """Makes the error of a ``send`` that waited too long for memory."""
    config = sender.config
    sender.metrics.exhausted.record(1, sender.cluster.clock.monotonic_ms())
    return BufferExhausted(
        f"buffer.memory ({config.buffer_memory} bytes) stayed full for {config.max_block_ms} ms (max.block.ms): the "
        "program sends records faster than the brokers accept them; send more slowly, or raise one of the two options"
    )
