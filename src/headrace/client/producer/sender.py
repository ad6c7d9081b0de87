"""Sends the batches of the accumulator to the brokers, and reads the answers.

All work is done in steps (:meth:`Sender.step`). A step does the following:

1. It gives up batches that are too old.
2. It asks the accumulator which brokers have batches to send.
3. It drains a request for each of them and writes it to the connection, up to
   ``max.in.flight.requests.per.connection`` requests per broker.
4. It sets a timer for the next batch that becomes ready.

A step runs when the sender is woken (a batch is full, a queue got its first record, ...), when an answer arrives, and
when the timer fires. A step is a plain function on the event loop: a task that waits for five kinds of events would
cost more than the step. What takes time (connecting, metadata, a producer id, adding partitions to a transaction) is a
task of its own. A step follows when such a task ends.

The sender holds the accumulator's lock while it changes batches, but never while it runs a user's code: callbacks run
after the lock is released (:meth:`Sender._call_back`).

If a whole request fails (no connection, no answer in time), each of its batches gets the error ``network_exception``.
``produce_results.py`` applies an answer to a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.connection import Connection
from headrace.client.errors import AuthenticationFailed, HeadraceError, UnsupportedByBroker
from headrace.client.metrics.connections import NodeMetrics
from headrace.client.metrics.registry import MetricsRegistry
from headrace.client.partitioners.strategies import Adaptive, Partitioner
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.batch import NO_OFFSET, ProducerBatch
from headrace.client.producer.delivery import call_back
from headrace.client.producer.flush_waiters import FlushWaiters
from headrace.client.producer.in_flight_requests import InFlightRequests
from headrace.client.producer.named_tasks import NamedTasks
from headrace.client.producer.produce_outcomes import broker_message
from headrace.client.producer.produce_results import ProduceResults
from headrace.client.producer.producer_metrics import ProducerMetrics
from headrace.client.producer.slow_leaders import SlowLeaders
from headrace.client.retry import Backoff
from headrace.client.transactions.manager import TransactionManager
from headrace.client.transactions.producer_ids import request_producer_id
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode
from headrace.protocol.wire.client_codec import Pieces

_ACKS = {"all": -1, "1": 1, "0": 0}
#: The last version with topic names; later versions have topic ids.
_PRODUCE_VERSION = 12
#: How often the partitioner gets the queue lengths.
_LOAD_INTERVAL_MS = 20
_PURPOSE = "produce"
#: Batches smaller than this are copied into their request.
_COPIED_BYTES = 32 * 1024


class Sender:
    """Sends the records of one producer, on the producer's event loop."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        partitioner: Partitioner,
        *,
        transaction: TransactionManager | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.accumulator = accumulator
        self.partitioner = partitioner
        self.transaction = transaction
        self.slow_leaders = SlowLeaders(config.partitioner_availability_timeout_ms)
        #: The error that ended the sender for good: nothing can be sent any more.
        self.fatal: HeadraceError | None = None
        self._acks = _ACKS[config.acks]
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._loop = asyncio.get_running_loop()
        on_failure = None if transaction is None else self._batch_failed
        self.metrics = metrics or ProducerMetrics(MetricsRegistry("producer", clock=cluster.clock))
        self._results = ProduceResults(config, cluster, accumulator, self.metrics, on_failure)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._tasks = NamedTasks(backoff, self.step, self._task_failed)
        self._is_woken = False
        self._is_stopped = False
        self._connections: dict[int, Connection] = {}
        self.in_flight: dict[int, InFlightRequests] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0.0
        self._flush_waiters = FlushWaiters(accumulator, self.wake)
        #: The errors of failed batches that the transaction does not know yet.
        self._batch_errors: list[Exception] = []
        self._next_expiry_ms = 0
        self._next_load_ms = 0
        self._topics_seen: object = None
        self._queues_seen = 0
        self._partitions_of: dict[int, list[tuple[str, int]]] = {}

    # ------------------------------------------------------------------------------------------------------- waking

    def wake(self) -> None:
        """Runs a step soon. Must be called on the event loop's thread."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._step_if_woken)

    def wake_from_thread(self) -> None:
        """Runs a step soon. May be called on any thread."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._step_if_woken)

    def _step_if_woken(self) -> None:
        if self._is_woken:
            self.step()

    def _wake_within(self, delay_ms: float) -> None:
        at_ms = self._now_ms() + delay_ms
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.step()

    def _now_ms(self) -> int:
        return self.cluster.clock.monotonic_ms()

    # -------------------------------------------------------------------------------------------------------- a step

    def step(self) -> None:
        self._is_woken = False
        if self._is_stopped:
            return
        try:
            self._step()
        except Exception as error:  # A bug in this client: all waiting callers get an error.
            self.fatal = HeadraceError(f"a bug in the producer has stopped it, make another one: {error!r}")
            self.drop(self.fatal)
            self.drop(self.fatal, in_flight=True)
            raise

    def _step(self) -> None:
        accumulator = self.accumulator
        now_ms = self._now_ms()
        settled: list[ProducerBatch] = []
        requests: list[tuple[int, Connection, list[ProducerBatch]]] = []
        with accumulator.lock:
            if now_ms >= self._next_expiry_ms:
                settled += self._expire(now_ms)
            if self.fatal is not None:
                settled += self._results.drop_waiting(self.fatal)
            if accumulator.epochs.needs_producer_id and self.transaction is None:
                self._tasks.start("a producer id", self._get_producer_id)
            if self.transaction is not None and self.transaction.must_add_partitions():
                self._tasks.start("adding partitions to the transaction", self.transaction.add_partitions)
            self._fill(requests, now_ms)
            if accumulator.unfinished:
                self._wake_within(max(1, self._next_expiry_ms - now_ms))
            if now_ms >= self._next_load_ms and isinstance(self.partitioner, Adaptive):
                self._update_load(now_ms)
        for node_id, connection, batches in requests:
            self._send(node_id, connection, batches)
        if settled:
            self._call_back(settled)

    def _fill(self, requests: list[tuple[int, Connection, list[ProducerBatch]]], now_ms: int) -> None:
        """Drains requests for all brokers that have batches to send, until they take no more."""
        is_stale = self.cluster.is_stale()
        has_room = True
        while has_room:
            ready = self.accumulator.ready(now_ms, self._leader_of)
            if ready.unknown_leader_topics:
                is_stale = True
            if ready.next_check_delay_ms is not None:
                self._wake_within(max(1, ready.next_check_delay_ms))
            has_room = False
            for node_id in ready.nodes:
                drained = self._drain(node_id, now_ms)
                if drained is not None:
                    requests.append(drained)
                    has_room = has_room or not self.in_flight[node_id].is_full
        if is_stale:
            self._tasks.start("metadata", self._refresh)

    def _call_back(self, settled: list[ProducerBatch]) -> None:
        """Wakes the callers that wait for the batches. The lock is not held, because a callback may send again."""
        for batch in settled:
            if batch.listeners or batch.callbacks:
                call_back(batch)
        self._flush_waiters.batches_settled()
        errors, self._batch_errors = self._batch_errors, []
        for error in errors:
            assert self.transaction is not None
            self.transaction.batch_failed(error)

    def _batch_failed(self, error: Exception) -> None:
        self._batch_errors.append(error)

    def _task_failed(self, name: str, error: HeadraceError) -> None:
        if name != "metadata" or isinstance(error, AuthenticationFailed):
            self.fatal = error

    def _leader_of(self, topic: str, partition: int) -> int | None:
        leader = self.cluster.metadata.leader(topic, partition)
        return None if leader is None else leader.id

    def _drain(self, node_id: int, now_ms: int) -> tuple[int, Connection, list[ProducerBatch]] | None:
        """Drains one request for a broker, if the broker may get one more."""
        connection = self._connections.get(node_id)
        in_flight_requests = self.in_flight.get(node_id)
        if in_flight_requests is None:
            in_flight_requests = self.in_flight[node_id] = InFlightRequests(self._max_in_flight)
        if connection is None or connection.is_closed or in_flight_requests.is_full or connection.is_throttled:
            if connection is not None and connection.is_throttled:
                self._wake_within(max(1, connection.throttle_left_ms))
            if connection is None or connection.is_closed:
                self._tasks.start(f"a connection to broker {node_id}", partial(self._connect, node_id))
            self.slow_leaders.ready(node_id, now_ms, is_drained=False)
            return None
        self.slow_leaders.ready(node_id, now_ms, is_drained=True)
        accumulator = self.accumulator
        batches = accumulator.drain(node_id, self._partitions_led_by(node_id), now_ms, self.config.max_request_size)
        if not batches:
            return None
        if self._max_in_flight == 1:
            for batch in batches:
                accumulator.mute(batch.topic, batch.partition)
        if self._acks:
            in_flight_requests.sent()
        return node_id, connection, batches

    def _partitions_led_by(self, node_id: int) -> Sequence[tuple[str, int]]:
        metadata, queues = self.cluster.metadata, self.accumulator.queues
        if self._topics_seen is not metadata.topics or self._queues_seen != len(queues):
            self._topics_seen, self._queues_seen = metadata.topics, len(queues)
            self._partitions_of = {}
            for (topic, partition), queue in queues.items():
                leader_id = self._leader_of(topic, partition)
                if leader_id is not None:
                    self._partitions_of.setdefault(leader_id, []).append((topic, partition))
                    queue.leader_requests = self.in_flight.setdefault(leader_id, InFlightRequests(self._max_in_flight))
        return self._partitions_of.get(node_id, ())

    def _update_load(self, now_ms: int) -> None:
        self._next_load_ms = now_ms + _LOAD_INTERVAL_MS
        metadata = self.cluster.metadata
        for topic in {topic for topic, _ in self.accumulator.queues}:
            live = [
                partition.partition
                for partition in metadata.partitions(topic)
                if partition.leader_id >= 0 and not self.slow_leaders.is_slow(partition.leader_id)
            ]
            self.partitioner.on_load(topic, self.accumulator.load_of(topic, live))

    # ----------------------------------------------------------------------------------------- requests and answers

    def _send(self, node_id: int, connection: Connection, batches: list[ProducerBatch]) -> None:
        topics: dict[str, list[dict[str, object]]] = {}
        for batch in batches:
            topics.setdefault(batch.topic, []).append({"index": batch.partition, "records": _records_of(batch)})
        transaction = self.transaction
        fields = {
            "transactional_id": None if transaction is None else transaction.transactional_id,
            "acks": self._acks,
            "timeout": self.config.request_timeout_ms,
            "topic_data": [{"name": name, "partition_data": partitions} for name, partitions in topics.items()],
        }
        most = _PRODUCE_VERSION if transaction is None else transaction.produce_version
        try:
            version = connection.version_of(Api.PRODUCE, most)
        except UnsupportedByBroker as error:
            self.fatal = error
            if self._acks:
                self.in_flight[node_id].answered()
            self._failed(node_id, batches, error)
            return
        self.metrics.request_sent(batches)
        answer = connection.send(Api.PRODUCE, version, fields, expects_answer=self._acks != 0)
        if self._acks == 0 and not answer.exception():
            self._unacknowledged(batches)
        else:
            answer.add_done_callback(partial(self._answered, node_id, batches, connection.metrics, monotonic()))

    def _unacknowledged(self, batches: list[ProducerBatch]) -> None:
        """With acks=0 there is no answer: a batch counts as delivered once it is written to the socket."""
        with self.accumulator.lock:
            for batch in batches:
                self._results.stored(batch, NO_OFFSET, -1)
        self._call_back(batches)
        self.wake()

    def _answered(
        self, node_id: int, batches: list[ProducerBatch], node: NodeMetrics | None, sent: float,
        future: asyncio.Future[Any],
    ) -> None:  # fmt: skip
        if self._acks:
            self.in_flight[node_id].answered()
        self.wake()
        if node is not None:
            node.latency.record((monotonic() - sent) * 1000, self._now_ms())
        error = future.exception()
        if error is not None:
            assert isinstance(error, HeadraceError), error
            self._failed(node_id, batches, error)
            return
        answers = {
            (topic.name, partition.index): partition
            for topic in future.result().responses
            for partition in topic.partition_responses
        }
        results = self._results
        settled: list[ProducerBatch] = []
        with self.accumulator.lock:
            for batch in batches:
                answer = answers.get((batch.topic, batch.partition))
                if answer is None:
                    message = "the broker's answer does not contain the partition"
                    settled += results.rejected(batch, ErrorCode.network_exception, message)
                elif answer.error_code is ErrorCode.none:
                    results.stored(batch, answer.base_offset, _epoch_ms(getattr(answer, "log_append_time", None)))
                    settled.append(batch)
                else:
                    settled += results.rejected(batch, answer.error_code, broker_message(answer))
        self._call_back(settled)

    def _failed(self, node_id: int, batches: list[ProducerBatch], error: HeadraceError) -> None:
        """The request has no answer: the connection ended, or the request timed out."""
        self._connections.pop(node_id, None)
        self.cluster.invalidate()
        settled: list[ProducerBatch] = []
        with self.accumulator.lock:
            for batch in batches:
                settled += self._results.rejected(batch, ErrorCode.network_exception, None, error)
        self._call_back(settled)

    def _expire(self, now_ms: int) -> list[ProducerBatch]:
        expired = self._results.expire(now_ms)
        # A new batch expires later than all batches that exist now.
        self._next_expiry_ms = self.accumulator.completion.next_expiry_ms() or now_ms + self.config.delivery_timeout_ms
        return expired

    def drop(self, error: HeadraceError, *, in_flight: bool = False) -> None:
        """Gives up the batches that wait; with ``in_flight``, the batches that were sent and have no answer."""
        with self.accumulator.lock:
            settled = self._results.drop_in_flight(error) if in_flight else self._results.drop_waiting(error)
        self._call_back(settled)

    async def flush(self) -> None:
        """Sends all batches that are buffered now, and waits until they are settled."""
        await self._flush_waiters.flush()

    # ---------------------------------------------------------------------------------------------------------- tasks

    async def _connect(self, node_id: int) -> None:
        self._connections[node_id] = await self.cluster.connection(node_id, purpose=_PURPOSE)

    async def _refresh(self) -> None:
        topics = {topic for topic, _ in self.accumulator.queues} or None
        await self.cluster.refresh(topics, create=False, timeout_ms=self.config.request_timeout_ms)

    async def _get_producer_id(self) -> None:
        producer_id, epoch = await request_producer_id(self.cluster)
        with self.accumulator.lock:
            self.accumulator.epochs.set_producer(producer_id, epoch)

    # -------------------------------------------------------------------------------------------------------- ending

    async def stop(self) -> None:
        """Stops all steps and tasks. The connections belong to the cluster, which closes them."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()


def _records_of(batch: ProducerBatch) -> bytes | Pieces:
    """Returns the bytes of a batch. A large batch is not copied."""
    if batch.size_bytes < _COPIED_BYTES:
        return batch.data
    records = batch.records if batch.compressed is None else batch.compressed
    return Pieces(batch.head, records)


def _epoch_ms(moment: Any) -> int:
    return -1 if moment is None else round(moment.timestamp() * 1000)
