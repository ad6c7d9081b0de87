"""The blocking consumer. It has the methods of ``AsyncConsumer`` (``async_consumer.py``).

::

    with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        for record in consumer:
            ...

The consumer itself runs on the event loop that all blocking clients of the process share (``background.py``). Fetching,
heartbeats and commits go on there while the program does other things. If records are fetched already, a poll takes
them on the caller's thread. Any other poll waits for the event loop's thread once, for a whole list of records.

Callbacks run on the thread that polls, as in Java. Rebalance callbacks run within ``poll()``, ``unsubscribe()`` and
``close()``, so they may use the consumer (commit, seek). Callbacks of ``commit_nowait`` run at the next poll, or in
``close()``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from uuid import UUID

from headrace.client import background
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.assigned_partitions import CHECK_INTERVAL_MS
from headrace.client.consumer.async_consumer import AsyncConsumer
from headrace.client.consumer.committer import CommitCallback, Offsets
from headrace.client.consumer.fetch_positions import BatchToRead
from headrace.client.consumer.offset_lookup import FoundOffset
from headrace.client.errors import HeadraceError
from headrace.client.metrics.registry import Metrics
from headrace.client.types import (
    ConsumedRecord,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

_T = TypeVar("_T")
#: A function that gets a sorted list of partitions.
Callback = Callable[[list[TopicPartition]], object]


class _Call(NamedTuple):
    """A callback that the event loop's thread passes to the user's thread."""

    callback: Callback
    partitions: list[TopicPartition]
    done: asyncio.Future[None]


class Consumer:
    """Reads records of topics. Blocks while it waits; see :class:`AsyncConsumer` for asyncio.

    Options are those of ``ConsumerConfig``. ``close`` or the end of a ``with`` block leaves the group and disconnects.
    """

    def __init__(self, *topics: str, config: Mapping[str, object] | None = None, **options: Any) -> None:
        """
        :param topics: topics to subscribe to, as :meth:`subscribe` does.
        :param config: options by Kafka's names, ``{"group.id": "billing"}``.
        :param options: options by Python's names, ``group_id="billing"``; see ``config.ConsumerConfig``.
        """
        self._background = background.current()
        self._consumer = self._call(lambda: AsyncConsumer(*topics, config=config, **options))
        #: What a thread that waits in a poll gets from the event loop's thread: callbacks to run, the finished task.
        self._inbox: SimpleQueue[_Call | asyncio.Task[Any]] = SimpleQueue()
        self._has_callbacks = False
        self._commit_callbacks: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> ConsumerConfig:
        return self._consumer.config

    def start(self) -> None:
        """Connects to the cluster. If it was not called, the first other call does it.

        :raises BrokerUnreachable: if no broker answers in time.
        """
        self._run(self._consumer.start())

    def close(self) -> None:
        """Commits if ``enable.auto.commit`` is on, leaves the group, and disconnects."""
        self._run_with_callbacks(self._consumer.close())
        self._run_commit_callbacks()

    def metrics(self) -> Metrics:
        """Returns the metrics of the consumer; see :meth:`AsyncConsumer.metrics`. It does not wait."""
        return self._consumer.metrics()

    def client_instance_id(self, *, timeout_ms: float | None = None) -> UUID:
        """Returns the id under which a broker stores the metrics of this client; see docs/clients.md, telemetry."""
        return self._run(self._consumer.client_instance_id(timeout_ms=timeout_ms))

    # -- running on the event loop

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._background.run(coroutine)

    def _call(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        return self._run(call())

    def _run_with_callbacks(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine on the event loop's thread, and meanwhile runs its callbacks on this thread."""
        if not self._has_callbacks:
            return self._run(coroutine)

        async def run() -> _T:
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(self._inbox.put)
            return await coroutine

        return self._run_until_done(run())

    def _run_until_done(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        tasks: list[asyncio.Task[_T]] = []
        self._background.call_soon(lambda: tasks.append(self._background.loop.create_task(coroutine)))
        try:
            # Items that an interrupted call has left in the queue are skipped.
            while (item := self._inbox.get()) not in tasks:
                if isinstance(item, _Call) and not item.done.done():
                    self._run_callback(item)
        except BaseException:
            self._background.call_soon(lambda: tasks[0].cancel())
            raise
        return tasks[0].result()

    def _run_callback(self, call: _Call) -> None:
        try:
            call.callback(call.partitions)
        except Exception as error:  # noqa: BLE001  the poll raises it
            self._background.call_soon(_set_exception, call.done, error)
        else:
            self._background.call_soon(_set_result, call.done)

    def _on_polling_thread(self, callback: Callback | None) -> Callable[[list[TopicPartition]], Any] | None:
        """Wraps a callback for the asyncio consumer, so that it runs on the thread that polls."""
        if callback is None:
            return None

        async def hand_over(partitions: list[TopicPartition]) -> None:
            done = self._background.loop.create_future()
            self._inbox.put(_Call(callback, partitions, done))
            await done

        return hand_over

    # -- what the consumer reads

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribes to these topics, or to those whose names match the pattern. The group shares the partitions.

        The callbacks get a list of partitions, are plain functions, and run within :meth:`poll`. Without ``on_lost``,
        lost partitions are passed to ``on_revoked``.
        """
        self._has_callbacks = any((on_assigned, on_revoked, on_lost))
        here = self._on_polling_thread
        callbacks = {"on_assigned": here(on_assigned), "on_revoked": here(on_revoked), "on_lost": here(on_lost)}
        self._call(partial(self._consumer.subscribe, topics, pattern=pattern, **callbacks))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, without a group. Partitions that it had before keep their positions."""
        self._call(partial(self._consumer.assign, list(partitions)))

    def unsubscribe(self) -> None:
        """Gives up all partitions, and leaves the group."""
        self._run_with_callbacks(self._consumer.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that the consumer reads now."""
        return self._call(self._consumer.assignment)

    def subscription(self) -> set[str]:
        """Returns the topics that the consumer has subscribed to."""
        return self._call(self._consumer.subscription)

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these partitions until :meth:`resume`. The partitions stay assigned."""
        self._call(partial(self._consumer.pause, *partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Returns records of paused partitions again."""
        self._call(partial(self._consumer.resume, *partitions))

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that are paused."""
        return self._call(self._consumer.paused)

    # -- records

    def poll(self, timeout_ms: float = CHECK_INTERVAL_MS, max_records: int | None = None) -> list[ConsumedRecord]:
        """Returns records as soon as there are some; an empty list if the timeout passes first.

        :param max_records: the most records to return. Without it, ``max.poll.records``.
        """
        self._run_commit_callbacks()
        if records := self._consumer.take_now(max_records):
            self._wake()
            return records
        return self._run_with_callbacks(self._consumer.poll(timeout_ms, max_records))

    def _wake(self) -> None:
        if self._consumer.has_room_again:
            self._background.call_soon(self._consumer.wake)

    def poll_batches(self, timeout_ms: float = CHECK_INTERVAL_MS, *, max_bytes: int = 50 << 20) -> list[BatchToRead]:
        """Returns whole batches as they were fetched; see :meth:`AsyncConsumer.poll_batches`."""
        self._run_commit_callbacks()
        return self._run_with_callbacks(self._consumer.poll_batches(timeout_ms, max_bytes=max_bytes))

    def poll_arrow(
        self, timeout_ms: float = CHECK_INTERVAL_MS, *, max_bytes: int = 50 << 20, include_headers: bool = False
    ) -> pyarrow.RecordBatch:
        """Returns records as rows of an Arrow RecordBatch; see :meth:`AsyncConsumer.poll_arrow`."""
        self._run_commit_callbacks()
        polling = self._consumer.poll_arrow(timeout_ms, max_bytes=max_bytes, include_headers=include_headers)
        return self._run_with_callbacks(polling)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        # A generator of records would be resumed for each record. This one is resumed for each list of records.
        return chain.from_iterable(self._lists())

    def _lists(self) -> Iterator[Iterator[ConsumedRecord]]:
        consumer = self._consumer
        while True:
            self._run_commit_callbacks()
            if records := consumer.take_now(is_iteration=True):
                self._wake()
            else:
                records = self._run_with_callbacks(consumer.poll_for_iteration())
            yield consumer.iterate(records)

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Moves a partition to an offset. The next record has this offset, or the next higher one that exists."""
        self._call(partial(self._consumer.seek, partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves these partitions, or all that are assigned, to their first record."""
        self._call(partial(self._consumer.seek_to_beginning, *partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves these partitions, or all that are assigned, behind their last record."""
        self._call(partial(self._consumer.seek_to_end, *partitions))

    def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record of a partition. Looks the offset up if it is not known yet."""
        return self._run(self._consumer.position(partition, timeout_ms=timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Returns how far the partition's end is ahead of the position, as of the last fetch; None before the first."""
        return self._call(partial(self._consumer.current_lag, partition))

    def lag(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Asks the brokers how far the end of each partition is ahead of the position.

        Without partitions, for all that are assigned.
        """
        return self._run(self._consumer.lag(*partitions, timeout_ms=timeout_ms))

    # -- commits

    def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commits offsets, and waits until they are committed.

        :param offsets: the offset of the next record to read, by partition. Without it, the offsets behind all records
            that were returned.
        :raises MemberFenced: if the group has given the partitions to other members.
        """
        self._run(self._consumer.commit(offsets, timeout_ms=timeout_ms))

    def commit_nowait(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commits in the background. Commits are sent in the order of the calls.

        The next poll calls the callback with the offsets, and with the error if there was one.
        """

        def later(committed: Mapping[TopicPartition, OffsetAndMetadata], error: HeadraceError | None) -> None:
            assert callback is not None
            self._commit_callbacks.put(partial(callback, committed, error))

        wrapped = None if callback is None else later
        self._call(partial(self._consumer.commit_nowait, offsets, wrapped))

    def _run_commit_callbacks(self) -> None:
        """Runs the callbacks of the commits in the background that have ended."""
        while not self._commit_callbacks.empty():
            try:
                self._commit_callbacks.get_nowait()()
            except Empty:
                return

    def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the offsets that the group has committed; None for partitions without one.

        Without partitions, for all that are assigned.
        """
        return self._run(self._consumer.committed(*partitions, timeout_ms=timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's place in its group, for a transaction that commits its offsets."""
        return self._call(self._consumer.group_metadata)

    # -- questions to the brokers

    def beginning_offsets(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset of the first record of each partition."""
        return self._run(self._consumer.beginning_offsets(*partitions, timeout_ms=timeout_ms))

    def end_offsets(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Returns the offset of the next record of each partition.

        With ``read_committed``, the offset of the first record of an open transaction, if there is one.
        """
        return self._run(self._consumer.end_offsets(*partitions, timeout_ms=timeout_ms))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Returns the first record of each partition at or after a timestamp; None if there is no such record."""
        return self._run(self._consumer.offsets_for_times(timestamps_ms, timeout_ms=timeout_ms))

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """Returns the partitions of a topic.

        :raises UnknownTopic: if the topic does not exist.
        """
        return self._run(self._consumer.partitions_for(topic, timeout_ms=timeout_ms))

    def list_topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        """Returns all topics by name."""
        return self._run(self._consumer.list_topics(timeout_ms=timeout_ms))


def _set_result(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _set_exception(done: asyncio.Future[None], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
