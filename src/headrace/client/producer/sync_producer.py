"""The producer for programs without an event loop.

::

    with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
        delivery = producer.send("orders", b"...", key=b"42")       # buffered
        metadata = delivery.result(timeout=10)                       # acknowledged
        producer.send("orders", b"...", on_delivery=print)           # or told of it
        producer.flush()

``send`` appends the record on the caller's own thread, under the lock of the accumulator, and goes nowhere else: the
sender, on the thread that all blocking clients of the process share (``background.py``), is woken only when a batch is
full or the first record of a partition has come. So a record costs about a microsecond, whatever becomes of it. A
producer may be used by many threads at once.

Everything else is the method of :class:`AsyncProducer` of that name, run on that other thread. ``on_delivery`` is
called there too: it must not wait for this producer, and what takes long in it holds up all clients.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING, Any, Self

from headrace.client import background
from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.errors import ClientClosed
from headrace.client.producer.async_producer import AsyncProducer, exhausted
from headrace.client.producer.batch import ProducerBatch
from headrace.client.producer.buffer_pool import Wait, WaitState
from headrace.client.producer.core import OVERHEAD_BYTES, Blocked, ProducerCore
from headrace.client.producer.delivery import Delivery, OnDelivery
from headrace.client.producer.encoded_batch import EncodedBatch
from headrace.client.producer.inputs import GivenHeaders
from headrace.client.retry import Deadline
from headrace.client.transactions.transaction_manager import GroupPlace, Offsets
from headrace.client.types import PartitionInfo, RecordMetadata

if TYPE_CHECKING:
    from headrace.client.arrow.tables import BlockingArrowDelivery

_FOREVER_MS = 2**31 - 1
#: How long a program that does not close its producers waits at its end for what they have buffered.
_AT_THE_END_S = 5.0
#: A thread that waits for memory waits for that of so many batches.
_BATCHES_A_WAIT = 32


class _Inner(AsyncProducer):
    """The same producer, but its records are buffered by threads."""

    def _new_core(self, cluster: Cluster) -> ProducerCore:
        return ProducerCore(self.config, cluster.metadata, cluster.clock, Delivery)


class Producer:
    """Options are those of ``ProducerConfig``: as keywords, or by Kafka's names in ``config``.

    :raises BrokerUnreachable: if no broker answers within ``max.block.ms``.
    """

    def __init__(self, config: Mapping[str, object] | None = None, **options: Any) -> None:
        self._inner = _Inner(config, **options)
        self._background = background.current()
        self._background.run(self._inner.start())
        self._core = self._inner.core
        self._filling = self._core.filling
        lock = self._core.accumulator.lock
        self._acquire, self._release = lock.acquire, lock.release
        self._release_if_held = self._core.release_if_held
        self._wake = self._inner.sender.wake_from_thread
        self._is_closed = False
        self._background.tell(self)

    def __repr__(self) -> str:
        return repr(self._inner).replace("_Inner", type(self).__name__)

    @property
    def config(self) -> ProducerConfig:
        return self._inner.config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(None if kind is None else self.config.request_timeout_ms / 1000)

    def close(self, timeout: float | None = None) -> None:
        """Sends what is buffered, waits for the answers, and ends; an open transaction is left to time out.

        :param timeout: in seconds; what is not delivered by then fails. None: as long as it takes.
        """
        if not self._is_closed:
            self._is_closed = True
            self._background.run(self._inner.close(None if timeout is None else timeout * 1000))

    def program_ends(self) -> None:
        """Nobody closed it. What is buffered goes out all the same, if that does not take long."""
        self.close(_AT_THE_END_S)

    def forked(self) -> None:
        """In a child process it is the parent's: what is buffered is sent there, and nothing more here."""
        self._core.accumulator.lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
        self._core.refuse(ClientClosed("this producer was made before a fork; make another one in the child process"))
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
        headers: GivenHeaders = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Buffers a record, to be sent with others of its partition. Parameters and errors as in ``AsyncProducer``.

        :return: ``.result(timeout)`` waits for the record's metadata, or raises why it was not delivered.
        """
        # The short way of ProducerCore.buffer, once more: a call less is a tenth of what a record costs.
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
        core = self._core
        result = core.buffer_other(topic, value, key, partition, timestamp_ms, headers, on_delivery)
        if core.has_news or result.__class__ is Blocked:
            result = self._with_news(result)
        return result  # type: ignore[no-any-return]

    def send_and_wait(self, topic: str, value: Any = None, **options: Any) -> RecordMetadata:
        """Sends a record and waits until the broker has it."""
        return self.send(topic, value, **options).result()

    def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent so far is delivered or has failed; it goes without ``linger.ms``.

        :param timeout: in seconds.
        :raises KafkaTimeout: if the time is up first.
        """
        self._run(self._inner.flush(), timeout)

    def partitions_of(self, topic: str) -> list[PartitionInfo]:
        """The topic's partitions, as a record for it would find them."""
        return self._run(self._inner.partitions_of(topic))  # type: ignore[no-any-return]

    def send_arrow(self, topic: str, table: object, *, partition: int | None = None) -> BlockingArrowDelivery:
        """Buffers the rows of a table, of pyarrow, pandas or polars; see ``AsyncProducer.send_arrow``.

        :return: ``.result(timeout)`` waits until all rows are acknowledged, and says where they went.
        """
        from headrace.client.arrow.tables import BlockingArrowDelivery

        return BlockingArrowDelivery(self._run(self._inner.send_arrow(topic, table, partition=partition)), self._run)

    def send_encoded(self, topic: str, encoded: EncodedBatch) -> ProducerBatch:
        """See ``AsyncProducer.send_encoded``. ``Delivery.of(batch, index)`` speaks of one of its records."""
        batch = self._core.append_encoded(topic, encoded)
        if batch is None:
            self._wait_for_memory(encoded.size_bytes, Deadline(self._core.clock, self.config.max_block_ms))
            batch = self._core.append_encoded(topic, encoded, reserved_bytes=encoded.size_bytes)
            assert batch is not None
        self._core.has_news = False
        self._wake()
        return batch

    # -- transactions: see AsyncProducer

    def init_transactions(self) -> None:
        """Becomes the one producer of its ``transactional.id``; called once, before the first transaction."""
        self._run(self._inner.init_transactions())

    def begin_transaction(self) -> None:
        """From now on, what is sent belongs to a transaction."""
        self._run(self._inner.begin_transaction())

    def send_offsets_to_transaction(self, offsets: Offsets, group: GroupPlace) -> None:
        """Commits a consumer's positions with the transaction, or not at all."""
        self._run(self._inner.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Waits for all that was sent and commits it."""
        self._run(self._inner.commit_transaction())

    def abort_transaction(self) -> None:
        """Drops what was not sent yet and aborts the rest."""
        self._run(self._inner.abort_transaction())

    # -- waiting

    def _run(self, coroutine: Any, timeout: float | None = None) -> Any:
        if self._is_closed:
            coroutine.close()
            raise ClientClosed("the producer is closed")
        return self._background.run(coroutine, timeout)

    def _with_news(self, result: Any) -> Any:
        if isinstance(result, Blocked):
            result = self._unblock(result)
        if self._core.has_news:
            self._core.has_news = False
            self._wake()
        return result

    def _unblock(self, blocked: Blocked) -> Delivery:
        """Waits for what a record lacks, and buffers it."""
        if self._background.is_this_thread:
            raise RuntimeError("an on_delivery callback cannot wait for memory or metadata; send from another thread")
        deadline = Deadline(self._core.clock, self.config.max_block_ms)
        result: Any = blocked
        while isinstance(result, Blocked):
            if result.memory_bytes:
                memory_bytes = result.memory_bytes
                self._wait_for_memory(memory_bytes, deadline)
                result = self._core.try_record(result.record, memory_bytes)
            else:
                self._run(self._inner.partitions_of(result.record.topic))
                result = self._core.try_record(result.record)
        return result  # type: ignore[no-any-return]

    def _wait_for_memory(self, size_bytes: int, deadline: Deadline) -> None:
        """Waits for memory; and, while the pool is exhausted, for more of it than is needed now.

        Else the thread would be woken for each batch that is delivered, to fill one and wait again; a wake-up costs as
        much as dozens of records. What is too much goes back at once, for the next records to find.
        """
        pool, lock = self._core.pool, self._core.accumulator.lock
        asked_bytes = max(size_bytes, min(_BATCHES_A_WAIT * self.config.batch_size, pool.total_bytes // 4))
        ended = threading.Event()

        def on_end(_: Wait) -> None:
            ended.set()

        with lock:
            wait = pool.wait(asked_bytes, _FOREVER_MS, on_end)
        self._core.has_news = False
        self._wake()
        kept_bytes = 0
        try:
            if ended.wait(deadline.left_ms() / 1000):
                kept_bytes = size_bytes
        finally:  # Ctrl-C too: the memory is not to be lost.
            with lock:
                if wait.state is WaitState.GRANTED:
                    pool.release(asked_bytes - kept_bytes)
                pool.cancel(wait)
        if not kept_bytes:
            raise exhausted(self.config)
