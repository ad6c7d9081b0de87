"""The producer for asyncio programs.

::

    async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = await producer.send("orders", b"...", key=b"42")   # buffered
        metadata = await delivery                                      # acknowledged
        await producer.send_and_wait("orders", b"...")                 # both in one

``send`` returns once the record is buffered, and waits only while the topic is not known yet or ``buffer.memory`` is
full, for at most ``max.block.ms``. What it returns may be awaited, at once, later or never: records are sent anyway.
``flush`` waits for all that were sent so far.

All methods belong to the event loop that ``start`` ran on. For threads there is ``sync_producer.Producer``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import BufferExhausted, ClientClosed, KafkaTimeout
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.buffer_pool import Wait, WaitState
from headrace.client.producer.core import Blocked, ProducerCore
from headrace.client.producer.delivery import AsyncDelivery, OnDelivery
from headrace.client.producer.encoded_batch import EncodedBatch
from headrace.client.producer.inputs import GivenHeaders
from headrace.client.producer.sender import Sender
from headrace.client.retry import Deadline
from headrace.client.transactions.transaction_manager import GroupPlace, Offsets, Transactions
from headrace.client.types import PartitionInfo, RecordMetadata
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.client.arrow.tables import ArrowDelivery

_FOREVER_MS = 2**31 - 1
#: A program that only sends would never let others run, the sender among them; so ``send`` pauses after so many
#: records or so many batches, which is every few milliseconds.
_SENDS_A_PAUSE, _BATCHES_A_PAUSE = 2048, 8


class AsyncProducer:
    """Options are those of ``ProducerConfig``: as keywords, or by Kafka's names in ``config``.

    ``start`` finds the cluster; ``close`` sends what is buffered and ends. ``async with`` does both.
    """

    _core: ProducerCore
    _sender: Sender

    def __init__(
        self, config: Mapping[str, object] | None = None, *, clock: Clock | None = None, **options: object
    ) -> None:
        self.config = ProducerConfig.load(config, **options)
        self._clock = clock
        self._cluster: Cluster | None = None
        self._transactions: Transactions | None = None
        self._is_closed = False
        self._since_pause = 0

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "not started" if self._cluster is None else "open"
        return f"<{type(self).__name__} for {', '.join(self.config.bootstrap_servers)}, {state}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        # After an exception, what is buffered is not worth a long wait for a broker that may be the reason.
        await self.close(None if kind is None else self.config.request_timeout_ms)

    async def start(self) -> None:
        """Finds the cluster.

        :raises BrokerUnreachable: if no broker answers within ``max.block.ms``.
        """
        assert self._cluster is None, "a producer is started once"
        cluster = Cluster(self.config, clock=self._clock)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster, self._core = cluster, self._new_core(cluster)
        core = self._core
        if self.config.transactional_id is not None:
            self._transactions = Transactions(self.config, cluster, core)
        self._sender = Sender(self.config, cluster, core.accumulator, core.partitioner, transaction=self._transactions)
        if self._transactions is not None:
            self._transactions.sender = self._sender
        self._sender.wake()

    def _new_core(self, cluster: Cluster) -> ProducerCore:
        return ProducerCore(self.config, cluster.metadata, cluster.clock, AsyncDelivery)

    @property
    def core(self) -> ProducerCore:
        """Where records are buffered, once the producer is started."""
        return self._core

    @property
    def sender(self) -> Sender:
        """Who sends them."""
        return self._sender

    async def close(self, timeout_ms: float | None = None) -> None:
        """Sends what is buffered, waits for the answers, and ends; an open transaction is left to time out.

        :param timeout_ms: how long to wait; what is not delivered by then fails. None: as long as it takes.
        """
        if self._cluster is None or self._is_closed:
            self._is_closed = True
            return
        self._is_closed = True
        self._core.close()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._sender.flush()
        except TimeoutError:
            pass
        finally:
            self._sender.drop(ClientClosed("the producer was closed before the record was delivered"))
            await self._sender.stop()
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
        headers: GivenHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Buffers a record, to be sent with others of its partition.

        :param key: records of one key go to one partition. Bytes, or what ``key_serializer`` makes bytes of.
        :param partition: where to, if that is not to be chosen.
        :param timestamp_ms: since 1970; the present if not given.
        :param headers: a dict, or pairs, of texts and bytes.
        :param on_delivery: called with the metadata and None, or with None and the error.
        :return: what can be awaited for the record's :class:`RecordMetadata`, or the error why it was not delivered.
        :raises BufferExhausted: if ``buffer.memory`` stays full for ``max.block.ms``.
        :raises UnknownTopic: if there is no such topic or partition, and none comes within ``max.block.ms``.
        :raises RecordTooLarge: if the record is larger than ``max.request.size``.
        :raises ClientClosed: if the producer is closed.
        """
        core = self._core
        delivery = core.buffer(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if delivery.__class__ is Blocked:
            delivery = await self._unblock(delivery)
        self._since_pause += 1
        if core.has_news:
            core.has_news = False
            self._sender.wake()
            self._since_pause += _SENDS_A_PAUSE // _BATCHES_A_PAUSE
        if self._since_pause >= _SENDS_A_PAUSE:
            self._since_pause = 0
            await asyncio.sleep(0)
        return delivery  # type: ignore[no-any-return]

    async def send_and_wait(self, topic: str, value: Any = None, **options: Any) -> RecordMetadata:
        """Sends a record and waits until the broker has it."""
        return await (await self.send(topic, value, **options))

    async def flush(self) -> None:
        """Waits until all that was sent so far is delivered or has failed; it goes without ``linger.ms``."""
        self._check_open()
        await self._sender.flush()

    async def partitions_of(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions, as a record for it would find them."""
        return await self._open_cluster().partitions_of(topic, timeout_ms=self.config.max_block_ms)

    async def send_arrow(self, topic: str, table: object, *, partition: int | None = None) -> ArrowDelivery:
        """Buffers the rows of a table, of pyarrow, pandas or polars, without making an object of each.

        Columns: value, and if there are any key, partition, timestamp and headers; see ``arrow_writing.py``.
        Serializers are not used. Needs ``headrace[arrow]``.

        :return: what can be awaited for the offsets of each partition, once all rows are acknowledged.
        :raises ValueError: if the table is of another form; nothing is sent then.
        """
        from headrace.client.arrow.tables import send_arrow

        self._check_open()
        return await send_arrow(self, topic, table, partition=partition)

    async def send_encoded(self, topic: str, encoded: EncodedBatch) -> ProducerBatch:
        """Buffers a whole batch that is encoded already. Waits for memory.

        ``AsyncDelivery.of(batch, index)`` is what :meth:`send` would have returned for one of its records.
        """
        self._check_open()
        batch = self._core.append_encoded(topic, encoded)
        if batch is None:
            deadline = Deadline(self._core.clock, self.config.max_block_ms)
            await self._wait_for_memory(encoded.size_bytes, deadline)
            batch = self._core.append_encoded(topic, encoded, reserved_bytes=encoded.size_bytes)
            assert batch is not None
        self._core.has_news = False
        self._sender.wake()
        await asyncio.sleep(0)
        return batch

    # -- transactions

    async def init_transactions(self) -> None:
        """Becomes the one producer of its ``transactional.id``: an older one is fenced, what it left open is aborted.

        Called once, before the first transaction.
        """
        await self._transactional().init()

    async def begin_transaction(self) -> None:
        """From now on, what is sent belongs to a transaction.

        :raises ProducerFenced: if another producer of the same ``transactional.id`` has taken over.
        """
        self._transactional().begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group: GroupPlace) -> None:
        """Commits a consumer's positions with the transaction, or not at all.

        :param offsets: by partition, the offset of the next record to read.
        :param group: ``consumer.group_metadata()``, or the name of the group.
        """
        await self._transactional().send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Waits for all that was sent and commits it.

        :raises HeadraceError: if some of it failed; then :meth:`abort_transaction` is what is left to do.
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Drops what was not sent yet and aborts the rest."""
        await self._transactional().abort()

    def _transactional(self) -> Transactions:
        self._check_open()
        if self._transactions is None:
            raise ValueError("transactions need a transactional_id")
        return self._transactions

    # -- waiting

    async def _unblock(self, blocked: Blocked) -> AsyncDelivery:
        """Waits for what a record lacks, and buffers it."""
        cluster = self._open_cluster()
        deadline = Deadline(self._core.clock, self.config.max_block_ms)
        result: Any = blocked
        while isinstance(result, Blocked):
            if result.memory_bytes:
                memory_bytes = result.memory_bytes
                await self._wait_for_memory(memory_bytes, deadline)
                result = self._core.try_record(result.record, memory_bytes)
            else:
                await cluster.partitions_of(result.record.topic, timeout_ms=deadline.left_ms())
                result = self._core.try_record(result.record)
        return result  # type: ignore[no-any-return]

    async def _wait_for_memory(self, size_bytes: int, deadline: Deadline) -> None:
        pool, lock = self._core.pool, self._core.accumulator.lock
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def on_end(_: Wait) -> None:
            if not ended.done():
                ended.set_result(None)

        with lock:
            wait = pool.wait(size_bytes, _FOREVER_MS, on_end)
        self._sender.wake()
        try:
            async with asyncio.timeout(deadline.left_ms() / 1000):
                await ended
        except TimeoutError:
            pass
        except BaseException:  # cancelled: the memory is not to be lost
            with lock:
                if wait.state is WaitState.GRANTED:
                    pool.release(size_bytes)
                pool.cancel(wait)
            raise
        with lock:
            is_granted = wait.state is WaitState.GRANTED
            pool.cancel(wait)
        if not is_granted:
            raise exhausted(self.config)

    def _open_cluster(self) -> Cluster:
        self._check_open()
        assert self._cluster is not None
        return self._cluster

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed")
        if self._cluster is None:
            raise ClientClosed("the producer is not started: use it with `async with`, or call start()")


def exhausted(config: ProducerConfig) -> KafkaTimeout:
    return BufferExhausted(
        f"buffer.memory ({config.buffer_memory} bytes) stayed full for {config.max_block_ms} ms (max.block.ms): "
        "the brokers take records more slowly than they are sent; send less, or give more of either"
    )
