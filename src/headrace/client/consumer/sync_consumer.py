"""The blocking consumer: it has the methods of ``AsyncConsumer`` (``async_consumer.py``).

::

    with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        for record in consumer:
            ...

The consumer itself lives on the clients' own event loop (``background.py``): fetching, heartbeats and commits go on
there while the program does other things. A poll that finds records fetched already takes them on the caller's thread,
any other crosses over once, for a whole list of records.

Callbacks run on the thread that polls, as in Java: those of a rebalance within ``poll()``, ``unsubscribe()`` and
``close()``, so that they may use the consumer (commit, seek); those of ``commit_nowait`` at the next poll, or the end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from headrace.client import background
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.async_consumer import AsyncConsumer, CommitCallback, Offsets
from headrace.client.consumer.base import LOOK_UP_MS
from headrace.client.consumer.fetch_positions import BatchToRead
from headrace.client.consumer.offset_lookup import FoundOffset
from headrace.client.errors import HeadraceError
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
#: Takes partitions, sorted.
Callback = Callable[[list[TopicPartition]], object]


class _Call(NamedTuple):
    """A callback that the loop's thread wants to be run on the user's."""

    callback: Callback
    partitions: list[TopicPartition]
    done: asyncio.Future[None]


class Consumer:
    def __init__(self, *topics: str, config: Mapping[str, object] | None = None, **options: Any) -> None:
        """
        :param topics: to subscribe to, as :meth:`subscribe` does.
        :param config: options by Kafka's names, ``{"group.id": "billing"}``.
        :param options: the same by Python's names, ``group_id="billing"``; see ``config.ConsumerConfig``.
        """
        self._background = background.current()
        self._consumer = self._call(lambda: AsyncConsumer(*topics, config=config, **options))
        #: What the thread that waits in a poll has to do: callbacks, and to return when the task is done.
        self._inbox: SimpleQueue[_Call | asyncio.Task[Any]] = SimpleQueue()
        self._has_callbacks = False
        self._told: SimpleQueue[Callable[[], object]] = SimpleQueue()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> ConsumerConfig:
        return self._consumer.config

    def start(self) -> None:
        """Finds the cluster. Other calls do so too, if this was not called.

        :raises BrokerUnreachable: if no broker answers in time.
        """
        self._run(self._consumer.start())

    def close(self) -> None:
        """Commits if that is automatic, leaves the group, and ends."""
        self._run_with_callbacks(self._consumer.close())
        self._tell()

    # -- crossing over

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._background.run(coroutine)

    def _call(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        return self._run(call())

    def _run_with_callbacks(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine there and, meanwhile, the callbacks that it wants to be run here."""
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
            # What an interrupted call left behind is passed over.
            while (item := self._inbox.get()) not in tasks:
                if isinstance(item, _Call) and not item.done.done():
                    self._answer(item)
        except BaseException:
            self._background.call_soon(lambda: tasks[0].cancel())
            raise
        return tasks[0].result()

    def _answer(self, call: _Call) -> None:
        try:
            call.callback(call.partitions)
        except Exception as error:  # noqa: BLE001  raised by the poll that it is part of
            self._background.call_soon(_set_exception, call.done, error)
        else:
            self._background.call_soon(_set_result, call.done)

    def _here(self, callback: Callback | None) -> Callable[[list[TopicPartition]], Any] | None:
        """A callback as the asynchronous consumer takes it, that runs on the thread that polls."""
        if callback is None:
            return None

        async def hand_over(partitions: list[TopicPartition]) -> None:
            done = self._background.loop.create_future()
            self._inbox.put(_Call(callback, partitions, done))
            await done

        return hand_over

    # -- what it reads

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """See :meth:`AsyncConsumer.subscribe`. The callbacks are plain functions."""
        self._has_callbacks = any((on_assigned, on_revoked, on_lost))
        here = self._here
        callbacks = {"on_assigned": here(on_assigned), "on_revoked": here(on_revoked), "on_lost": here(on_lost)}
        self._call(partial(self._consumer.subscribe, topics, pattern=pattern, **callbacks))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, whoever else does. Those that it had before keep their positions."""
        self._call(partial(self._consumer.assign, list(partitions)))

    def unsubscribe(self) -> None:
        """Gives up what it reads, and leaves the group."""
        self._run_with_callbacks(self._consumer.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that it reads now."""
        return self._call(self._consumer.assignment)

    def subscription(self) -> set[str]:
        """The topics that it has subscribed to."""
        return self._call(self._consumer.subscription)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until they are resumed. All of them keep being assigned."""
        self._call(partial(self._consumer.pause, *partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._call(partial(self._consumer.resume, *partitions))

    def paused(self) -> set[TopicPartition]:
        return self._call(self._consumer.paused)

    # -- records

    def poll(self, timeout_ms: float = LOOK_UP_MS, max_records: int | None = None) -> list[ConsumedRecord]:
        """Records, as soon as there are any; none if the time is up first.

        :param max_records: ``max.poll.records`` if not given.
        """
        self._tell()
        if records := self._consumer.take_now(max_records):
            self._wake()
            return records
        return self._run_with_callbacks(self._consumer.poll(timeout_ms, max_records))

    def _wake(self) -> None:
        if self._consumer.is_to_wake:
            self._background.call_soon(self._consumer.wake)

    def poll_batches(self, timeout_ms: float = LOOK_UP_MS, *, max_bytes: int = 50 << 20) -> list[BatchToRead]:
        """See :meth:`AsyncConsumer.poll_batches`."""
        self._tell()
        return self._run_with_callbacks(self._consumer.poll_batches(timeout_ms, max_bytes=max_bytes))

    def poll_arrow(
        self, timeout_ms: float = LOOK_UP_MS, *, max_bytes: int = 50 << 20, include_headers: bool = False
    ) -> pyarrow.RecordBatch:
        """Records as rows of an Arrow RecordBatch; see :meth:`AsyncConsumer.poll_arrow`."""
        self._tell()
        polling = self._consumer.poll_arrow(timeout_ms, max_bytes=max_bytes, include_headers=include_headers)
        return self._run_with_callbacks(polling)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        # A generator of records would be resumed for each of them; this is resumed for each round.
        return chain.from_iterable(self._rounds())

    def _rounds(self) -> Iterator[Iterator[ConsumedRecord]]:
        consumer = self._consumer
        while True:
            self._tell()
            if records := consumer.take_now(is_round=True):
                self._wake()
            else:
                records = self._run_with_callbacks(consumer.next_round())
            yield consumer.begin_round(records)

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """The next record that is handed out is that of the offset, or the next one that there is."""
        self._call(partial(self._consumer.seek, partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Of these partitions, or of all."""
        self._call(partial(self._consumer.seek_to_beginning, *partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._call(partial(self._consumer.seek_to_end, *partitions))

    def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be handed out, looked up if it is not known."""
        return self._run(self._consumer.position(partition, timeout_ms=timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the partition's end is ahead, as the last fetch told it; None before the first one."""
        return self._call(partial(self._consumer.current_lag, partition))

    def lag(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """How many offsets the end of each partition is ahead now; of all that it reads, if none are named."""
        return self._run(self._consumer.lag(*partitions, timeout_ms=timeout_ms))

    # -- commits

    def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commits these offsets, of the next record to read each, or those of all that was handed out. Waits for it.

        :raises MemberFenced: if the group has gone on without this consumer.
        """
        self._run(self._consumer.commit(offsets, timeout_ms=timeout_ms))

    def commit_nowait(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commits in the background; the next poll tells the callback of the end. Commits stay in order."""

        def later(committed: Mapping[TopicPartition, OffsetAndMetadata], error: HeadraceError | None) -> None:
            assert callback is not None
            self._told.put(partial(callback, committed, error))

        wrapped = None if callback is None else later
        self._call(partial(self._consumer.commit_nowait, offsets, wrapped))

    def _tell(self) -> None:
        """Runs the callbacks of the commits that have ended."""
        while not self._told.empty():
            try:
                self._told.get_nowait()()
            except Empty:
                return

    def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; of all partitions that it reads, if none are named."""
        return self._run(self._consumer.committed(*partitions, timeout_ms=timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Its place in the group, for a transaction that commits its offsets."""
        return self._call(self._consumer.group_metadata)

    # -- questions

    def beginning_offsets(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._run(self._consumer.beginning_offsets(*partitions, timeout_ms=timeout_ms))

    def end_offsets(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """The offset that the next record will get; with read_committed, that of the first open transaction."""
        return self._run(self._consumer.end_offsets(*partitions, timeout_ms=timeout_ms))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Of each partition the first record that is not older than the time; None if there is none."""
        return self._run(self._consumer.offsets_for_times(timestamps_ms, timeout_ms=timeout_ms))

    def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """
        :raises UnknownTopic: if it is not there.
        """
        return self._run(self._consumer.partitions_for(topic, timeout_ms=timeout_ms))

    def list_topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        return self._run(self._consumer.list_topics(timeout_ms=timeout_ms))


def _set_result(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _set_exception(done: asyncio.Future[None], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
