"""Sends what the accumulator has, and hears what became of it.

One step, :meth:`Sender.step`, does it all: give up what is too old, ask the accumulator which brokers there is
something for, drain a request for each of them and put it on its connection, up to
``max.in.flight.requests.per.connection``; then say when to look again. A step is taken when somebody wakes the sender
(a batch is full, the first record of a queue has come, ...), when an answer comes, and when a timer says so. It is
a plain function on the event loop: a task that waits for five kinds of things would cost more than the step. What takes
time (connecting, metadata, a producer id, adding a partition to a transaction) is a task of its own, which ends in a
step.

The lock of the accumulator is held while batches change hands and never while a user's code runs: who waits for
a batch is told after it is released.

A request that fails as a whole (no connection, no answer in time) is an answer of ``network_exception`` for each of its
batches. What an answer means is in ``produce_outcomes.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from logging import getLogger
from typing import Any, Protocol

from headrace.client.accumulator import Accumulator
from headrace.client.cluster import Cluster
from headrace.client.config import ProducerConfig
from headrace.client.connection import Connection
from headrace.client.delivery import tell
from headrace.client.errors import BrokerUnreachable, HeadraceError, KafkaTimeout, UnsupportedByBroker
from headrace.client.partitioners import Partitioner, SlowLeaders
from headrace.client.produce_outcomes import WRONG_LEADER, Outcome, failure_of, outcome_of
from headrace.client.producer_batch import ProducerBatch
from headrace.client.producer_identity import ask_producer_id
from headrace.client.retry import Backoff
from headrace.protocol.api import Api
from headrace.protocol.kio import ErrorCode

logger = getLogger(__name__)

_ACKS = {"all": -1, "1": 1, "0": 0}
#: The last version that names topics; later ones have their ids.
_PRODUCE_VERSION = 12
#: How often the partitioner hears of the queues.
_LOAD_INTERVAL_MS = 5
_PURPOSE = "produce"


class TransactionGate(Protocol):
    """What the sender asks of a transaction."""

    transactional_id: str

    @property
    def produce_version(self) -> int: ...

    def unadmitted(self) -> bool:
        """Whether partitions that have records are to be added to the transaction first; the lock is held."""
        ...

    async def admit(self) -> None:
        """Adds them."""
        ...

    def batch_failed(self, error: Exception) -> None: ...


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        partitioner: Partitioner,
        *,
        transaction: TransactionGate | None = None,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.accumulator = accumulator
        self.partitioner = partitioner
        self.transaction = transaction
        self.slow_leaders = SlowLeaders(config.partitioner_availability_timeout_ms)
        #: Why nothing can be sent any more.
        self.fatal: HeadraceError | None = None
        self._acks = _ACKS[config.acks]
        self._is_ordered = config.max_in_flight_requests_per_connection == 1
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._loop = asyncio.get_running_loop()
        self._is_woken = False
        self._is_stopped = False
        self._connections: dict[int, Connection] = {}
        self._in_flight: dict[int, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: float | None = None
        self._flush_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._after_lock: list[Callable[[], None]] = []
        self._next_expiry_ms = 0
        self._next_load_ms = 0
        self._topics_seen: object = None
        self._queues_seen = 0
        self._partitions_of: dict[int, list[tuple[str, int]]] = {}

    # ------------------------------------------------------------------------------------------------------- waking

    def wake(self) -> None:
        """Takes a step soon. On the event loop's thread."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._step_if_woken)

    def wake_from_thread(self) -> None:
        """The same, on any thread."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._step_if_woken)

    def _step_if_woken(self) -> None:
        if self._is_woken:
            self.step()

    def _wake_within(self, delay_ms: float) -> None:
        at_ms = self._now_ms() + delay_ms
        if self._timer is not None:
            if self._timer_at_ms is not None and self._timer_at_ms <= at_ms:
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
        accumulator = self.accumulator
        now_ms = self._now_ms()
        requests: list[tuple[int, Connection, list[ProducerBatch]]] = []
        with self._changing() as settled:
            if now_ms >= self._next_expiry_ms:
                settled += self._expired(now_ms)
            if self.fatal is not None:
                settled += self._dropped(self.fatal)
            if accumulator.needs_producer and self.transaction is None:
                self._start("producer id", self._get_producer_id())
            if self.transaction is not None and self.transaction.unadmitted():
                self._start("transaction", self.transaction.admit())
            is_stale = self.cluster.is_stale()
            while True:
                ready = accumulator.ready(now_ms, self._leader_of)
                is_stale = is_stale or bool(ready.unknown_leader_topics)
                drained = [request for node_id in ready.nodes for request in self._drain(node_id, now_ms)]
                if not drained:
                    break
                requests += drained
            if ready.next_check_delay_ms is not None:
                self._wake_within(max(1, ready.next_check_delay_ms))
            if accumulator.has_incomplete:
                self._wake_within(max(1, self._next_expiry_ms - now_ms))
            if now_ms >= self._next_load_ms:
                self._tell_load(now_ms)
        if is_stale:
            self._start("metadata", self._refresh())
        for node_id, connection, batches in requests:
            self._send(node_id, connection, batches)

    @contextmanager
    def _changing(self) -> Iterator[list[ProducerBatch]]:
        """Holds the lock; whoever waits for the batches put into the list is told afterwards."""
        settled: list[ProducerBatch] = []
        with self.accumulator.lock:
            yield settled
        for batch in settled:
            tell(batch)
        callbacks, self._after_lock = self._after_lock, []
        for callback in callbacks:
            callback()
        if settled and self._flush_waiters:
            self._end_flushes()

    def after_lock(self, callback: Callable[[], None]) -> None:
        """Calls it once the lock, which is held, is released."""
        self._after_lock.append(callback)

    def _leader_of(self, topic: str, partition: int) -> int | None:
        leader = self.cluster.metadata.leader(topic, partition)
        return None if leader is None else leader.id

    def _drain(self, node_id: int, now_ms: int) -> list[tuple[int, Connection, list[ProducerBatch]]]:
        """One request for a node, if it takes one more."""
        connection = self._connections.get(node_id)
        if connection is None or connection.is_closed:
            self._connections.pop(node_id, None)
            self._start(f"connection {node_id}", self._connect(node_id))
            self.slow_leaders.ready(node_id, now_ms, is_drained=False)
            return []
        if self._in_flight.get(node_id, 0) >= self.config.max_in_flight_requests_per_connection:
            self.slow_leaders.ready(node_id, now_ms, is_drained=False)
            return []
        self.slow_leaders.ready(node_id, now_ms, is_drained=True)
        batches = self.accumulator.drain(
            node_id, self._partitions_led_by(node_id), now_ms, self.config.max_request_size
        )
        if not batches:
            return []
        if self._is_ordered:
            for batch in batches:
                self.accumulator.mute(batch.topic, batch.partition)
        if self._acks:
            self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        return [(node_id, connection, batches)]

    def _partitions_led_by(self, node_id: int) -> Sequence[tuple[str, int]]:
        metadata, queues = self.cluster.metadata, self.accumulator.queues
        if self._topics_seen is not metadata.topics or self._queues_seen != len(queues):
            self._topics_seen, self._queues_seen = metadata.topics, len(queues)
            self._partitions_of = {}
            for topic, partition in queues:
                leader_id = self._leader_of(topic, partition)
                if leader_id is not None:
                    self._partitions_of.setdefault(leader_id, []).append((topic, partition))
        return self._partitions_of.get(node_id, ())

    def _tell_load(self, now_ms: int) -> None:
        self._next_load_ms = now_ms + _LOAD_INTERVAL_MS
        metadata = self.cluster.metadata
        for topic in {topic for topic, _ in self.accumulator.queues}:
            live = [
                partition.partition
                for partition in metadata.partitions(topic)
                if partition.leader_id >= 0 and not self.slow_leaders.is_slow(partition.leader_id)
            ]
            self.partitioner.on_load(topic, self.accumulator.load_of(topic, live) if len(live) > 1 else None)

    # ----------------------------------------------------------------------------------------- requests and answers

    def _send(self, node_id: int, connection: Connection, batches: list[ProducerBatch]) -> None:
        topics: dict[str, list[dict[str, object]]] = {}
        for batch in batches:
            topics.setdefault(batch.topic, []).append({"index": batch.partition, "records": batch.data})
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
            self._failed(node_id, batches, error)
            return
        answer = connection.send(Api.PRODUCE, version, fields, expects_answer=self._acks != 0)
        if self._acks == 0 and not answer.exception():
            self._unacknowledged(batches)
        else:
            answer.add_done_callback(partial(self._answered, node_id, batches))

    def _unacknowledged(self, batches: list[ProducerBatch]) -> None:
        """acks=0: what is written to the socket is delivered, as far as anyone knows."""
        with self._changing() as settled:
            for batch in batches:
                self._deliver(batch, -1, -1)
            settled += batches
        self.wake()

    def _answered(self, node_id: int, batches: list[ProducerBatch], future: asyncio.Future[Any]) -> None:
        if self._acks:
            self._in_flight[node_id] -= 1
        error = future.exception()
        if error is not None:
            assert isinstance(error, HeadraceError), error
            self._failed(node_id, batches, error)
            return
        answers = {
            (topic.name, int(partition.index)): partition
            for topic in future.result().responses
            for partition in topic.partition_responses
        }
        with self._changing() as settled:
            for batch in batches:
                answer = answers.get((batch.topic, batch.partition))
                if answer is None:
                    message = "the broker's answer does not speak of the partition"
                    settled += self._judge(batch, ErrorCode.network_exception, message)
                elif answer.error_code is ErrorCode.none:
                    self._deliver(batch, int(answer.base_offset), _epoch_ms(answer.log_append_time))
                    settled.append(batch)
                else:
                    settled += self._judge(batch, answer.error_code, _message_of(answer))
        self.step()

    def _failed(self, node_id: int, batches: list[ProducerBatch], error: HeadraceError) -> None:
        """No answer: the connection ended, or the time for it."""
        self._connections.pop(node_id, None)
        self.cluster.invalidate()
        with self._changing() as settled:
            for batch in batches:
                settled += self._judge(batch, ErrorCode.network_exception, str(error), error)
        self.wake()

    def _deliver(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if self._is_ordered:
            self.accumulator.unmute(batch.topic, batch.partition)
        if not batch.is_settled:
            batch.succeed(base_offset, log_append_time_ms)
        self.accumulator.complete(batch)

    def _judge(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None, error: HeadraceError | None = None
    ) -> list[ProducerBatch]:
        """Deals with a batch that was not taken; the batches that are settled by it."""
        accumulator, is_transactional = self.accumulator, self.transaction is not None
        if self._is_ordered:
            accumulator.unmute(batch.topic, batch.partition)
        if code in WRONG_LEADER:
            self.cluster.invalidate()
        is_first = accumulator.is_first_in_flight(batch)
        outcome = outcome_of(
            code, batch, is_first_in_flight=is_first, is_transactional=is_transactional, retries=self.config.retries
        )
        if outcome is Outcome.DELIVERED:
            self._deliver(batch, -1, -1)
            return [batch]
        if outcome is Outcome.SPLIT:
            accumulator.split(batch)
            return [batch]
        if error is None:
            error = failure_of(code, batch, message)
        if outcome is Outcome.FAILED:
            if not batch.is_settled:
                self._give_up(batch, error)
            accumulator.fail(batch)
            return [batch]
        logger.info("%s-%s: to be sent again: %s", batch.topic, batch.partition, error)
        batch.error = error
        if outcome is Outcome.RENUMBER:
            accumulator.bump_epoch(batch.topic, batch.partition)
        accumulator.retry(batch, self._now_ms())
        return []

    def _give_up(self, batch: ProducerBatch, error: Exception) -> None:
        batch.give_up(error)
        if self.transaction is not None:
            self.transaction.batch_failed(error)

    # -------------------------------------------------------------------------------------------------- giving up

    def _expired(self, now_ms: int) -> list[ProducerBatch]:
        expired = self.accumulator.expire(now_ms)
        for batch in expired:
            self._give_up(batch, self._too_late(batch))
        # New batches expire later than any that is there now.
        self._next_expiry_ms = self.accumulator.next_expiry_ms() or now_ms + self.config.delivery_timeout_ms
        return expired

    def _too_late(self, batch: ProducerBatch) -> KafkaTimeout:
        place, timeout_ms = f"{batch.topic}-{batch.partition}", self.config.delivery_timeout_ms
        count = batch.record_count
        records = "a record" if count == 1 else f"{count} records"
        if batch.error is not None:
            last = f"; failed {batch.attempts} times, last: {batch.error}"
        elif batch.is_sealed:
            last = "; the broker has not answered"
        elif self._leader_of(batch.topic, batch.partition) is None:
            last = "; the partition has no leader that is known"
        else:
            last = "; there was no connection to its leader, or others were before it"
        return KafkaTimeout(f"{records} for {place} not delivered within {timeout_ms} ms (delivery.timeout.ms){last}")

    def _dropped(self, error: HeadraceError) -> list[ProducerBatch]:
        dropped = self.accumulator.abort()
        for batch in dropped:
            self._give_up(batch, error)
        return dropped

    def drop(self, error: HeadraceError, *, only_unsent: bool = False) -> None:
        """Gives up what waits; what is with a broker is answered by it."""
        with self._changing() as settled:
            dropped = self.accumulator.abort(only_unsent=only_unsent)
            for batch in dropped:
                batch.give_up(error)
            settled += dropped

    def fail_rest(self, error: HeadraceError) -> None:
        """Gives up what is with brokers that will not be heard any more."""
        with self._changing() as settled:
            for queue in self.accumulator.queues.values():
                for batch in list(queue.in_flight):
                    if not batch.is_settled:
                        batch.give_up(error)
                        settled.append(batch)
                    self.accumulator.fail(batch)

    # ------------------------------------------------------------------------------------------------------ flushing

    async def flush(self) -> None:
        """Sends all that is buffered now, and waits until it is settled."""
        with self.accumulator.lock:
            mark = self.accumulator.begin_flush()
        try:
            while not self._is_flushed(mark):
                waiter: asyncio.Future[None] = self._loop.create_future()
                self._flush_waiters.append((mark, waiter))
                self.wake()
                await waiter
        finally:
            with self.accumulator.lock:
                self.accumulator.end_flush()

    def _is_flushed(self, mark: int) -> bool:
        with self.accumulator.lock:
            return self.accumulator.is_flushed(mark)

    def _end_flushes(self) -> None:
        waiters, self._flush_waiters = self._flush_waiters, []
        for mark, waiter in waiters:
            if waiter.done():
                continue
            if self._is_flushed(mark):
                waiter.set_result(None)
            else:
                self._flush_waiters.append((mark, waiter))

    # --------------------------------------------------------------------------------------------- what takes longer

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task, unless one of that name runs already; a step follows it."""
        if name in self._tasks or self._is_stopped:
            work.close()
            return
        self._tasks[name] = task = self._loop.create_task(self._work(name, work))
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _work(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            self._failures.pop(name, None)
        except (BrokerUnreachable, KafkaTimeout) as error:
            self._failures[name] = failures = self._failures.get(name, 0) + 1
            logger.info("%s: %s", name, error)
            await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
        except HeadraceError as error:
            logger.error("%s: %s", name, error)
            if getattr(error, "is_retriable", False):
                self._failures[name] = failures = self._failures.get(name, 0) + 1
                await asyncio.sleep(self._backoff.delay_ms(failures) / 1000)
            elif name != "metadata":
                self.fatal = error
        self._loop.call_soon(self.step)

    async def _connect(self, node_id: int) -> None:
        self._connections[node_id] = await self.cluster.connection(node_id, purpose=_PURPOSE)

    async def _refresh(self) -> None:
        topics = {topic for topic, _ in self.accumulator.queues} or None
        await self.cluster.refresh(topics, create=False, timeout_ms=self.config.request_timeout_ms)

    async def _get_producer_id(self) -> None:
        producer_id, epoch = await ask_producer_id(self.cluster)
        with self.accumulator.lock:
            self.accumulator.set_producer(producer_id, epoch)

    # -------------------------------------------------------------------------------------------------------- ending

    async def stop(self) -> None:
        """Takes no more steps. The connections are the cluster's."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _epoch_ms(moment: Any) -> int:
    return -1 if moment is None else round(moment.timestamp() * 1000)


def _message_of(answer: Any) -> str | None:
    """What the broker says in words, from v8 on."""
    parts = [getattr(answer, "error_message", None)]
    parts += [
        f"record {int(error.batch_index)}: {error.batch_index_error_message}"
        for error in getattr(answer, "record_errors", ())
    ]
    return "; ".join(part for part in parts if part) or None
