"""AsyncConsumer: reads records of topics, alone or as a member of a group.

::

    async with AsyncConsumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        async for record in consumer:
            ...

Records are fetched ahead in the background (``fetcher.py``), and membership in the group goes on there as well. But
what concerns the user happens within :meth:`AsyncConsumer.poll`, and an iteration polls too: partitions come and go,
callbacks run, offsets are committed automatically. So what ``enable.auto.commit`` commits is what earlier polls handed
out. ``max.poll.records`` bounds a poll, and what an iteration takes at a time; more would not be faster, as records
that live long cost the garbage collector more.

One consumer is for one task: a second one that polls at the same time gets an error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, Any, Self

from headrace.client.config import ConsumerConfig
from headrace.client.consumer.base import LOOK_UP_MS, ConsumerBase
from headrace.client.consumer.fetch_positions import BatchToRead
from headrace.client.consumer.subscription import Callback, Callbacks
from headrace.client.errors import ClientClosed, HeadraceError
from headrace.client.membership.classic import ClassicMembership
from headrace.client.membership.consumer import ConsumerMembership
from headrace.client.membership.interfaces import Membership
from headrace.client.retry import Deadline
from headrace.client.types import ConsumedRecord, OffsetAndMetadata, TopicPartition
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

logger = getLogger(__name__)

#: How long the commit of a rebalance or of closing may take.
_LAST_COMMIT_MS = 5_000

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
#: Gets the offsets, and what went wrong if anything did.
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], HeadraceError | None], object]


class AsyncConsumer(ConsumerBase):
    def __init__(
        self,
        *topics: str,
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        **options: object,
    ) -> None:
        """
        :param topics: to subscribe to, as :meth:`subscribe` does.
        :param config: options by Kafka's names, ``{"group.id": "billing"}``.
        :param options: the same by Python's names, ``group_id="billing"``; see ``config.ConsumerConfig``.
        """
        super().__init__(ConsumerConfig.load(config, **options), clock)
        self._membership: Membership | None = None
        self._is_polling = False
        self._next_commit_ms: float | None = None
        self._commits: set[asyncio.Task[None]] = set()
        if topics:
            self.subscribe(topics)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
        """Reads a share of these topics, or of those whose names match the pattern, together with the group.

        The callbacks take a list of partitions, may be coroutine functions, and run within :meth:`poll`. Without
        ``on_lost`` what is lost is given to ``on_revoked``.
        """
        self._raise_if_closed()
        if self.config.group_id is None:
            raise ValueError("subscribe() needs a group_id; without a group, use assign()")
        topics = [topics] if isinstance(topics, str) else list(topics)
        if bool(topics) == (pattern is not None):
            raise ValueError("subscribe() takes topics or a pattern, one of them")
        if self._membership is None and self._positions.assignment():
            raise HeadraceError("this consumer was given partitions by assign(); unsubscribe() first")
        callbacks = Callbacks(on_assigned, on_revoked, on_lost)
        if pattern is None:
            self._subscription.to_topics(topics, callbacks)
        else:
            self._subscription.to_pattern(pattern, callbacks)
        if self._membership is None:
            make = ConsumerMembership if self.config.group_protocol == "consumer" else ClassicMembership
            self._membership = make(self._cluster, self.config, self._subscription)
            assert self._offsets is not None
            self._offsets.membership = self._membership
        else:
            self._membership.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, whoever else does. Those that it had before keep their positions."""
        self._raise_if_closed()
        if self._membership is not None:
            raise HeadraceError("this consumer has subscribed to topics; unsubscribe() first")
        self._subscription.set_partitions({TopicPartition(*partition) for partition in partitions})

    async def unsubscribe(self) -> None:
        """Gives up what it reads, and leaves the group."""
        self._raise_if_closed()
        await self._leave()
        self._subscription.clear()
        self._subscription.set_partitions(set())

    async def _leave(self) -> None:
        membership, self._membership = self._membership, None
        if membership is not None:
            await self._commit_before_rebalance()
            try:
                await membership.leave()
            finally:
                assert self._offsets is not None
                self._offsets.membership = None

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")

    async def close(self) -> None:
        """Commits if that is automatic, leaves the group, and ends."""
        if self._is_closed:
            return
        try:
            if self._fetcher is not None:
                await (self._leave() if self._membership is not None else self._commit_before_rebalance())
                await asyncio.gather(*self._commits, return_exceptions=True)
        finally:
            self._is_closed = True
            if self._fetcher is not None:
                await self._fetcher.close()
            await self._cluster.close()
            self._notifier.notify()

    # -- records

    async def poll(self, timeout_ms: float = LOOK_UP_MS, max_records: int | None = None) -> list[ConsumedRecord]:
        """Records, as soon as there are any; none if the time is up first.

        :param max_records: ``max.poll.records`` if not given.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        return await self._poll(timeout_ms, lambda: self._handout.take(limit))

    async def poll_batches(self, timeout_ms: float = LOOK_UP_MS, *, max_bytes: int = 50 << 20) -> list[BatchToRead]:
        """As :meth:`poll`, but whole batches as they were fetched, for those who decode them by themselves.

        Each has its partition, the batch, and the offset from which on its records are wanted.
        """
        return await self._poll(timeout_ms, lambda: self._handout.take_batches(max_bytes))

    async def poll_arrow(
        self, timeout_ms: float = LOOK_UP_MS, *, max_bytes: int = 50 << 20, include_headers: bool = False
    ) -> pyarrow.RecordBatch:
        """As :meth:`poll`, but the records are rows of an Arrow RecordBatch, which pandas and polars take as it is.

        Columns are topic, partition, offset, timestamp, timestamp_type, key and value (see ``arrow_reading.py``), and
        headers if asked for. Whole fetched batches, up to so many bytes of them; deserializers are not used.
        """
        from headrace.client.arrow.tables import poll_arrow

        return await poll_arrow(
            self, timeout_ms, max_bytes=max_bytes, include_headers=include_headers, check_crcs=self.config.check_crcs
        )

    async def _poll(self, timeout_ms: float, take: Callable[[], list[Any]]) -> list[Any]:
        fetcher = await self._running()
        if self._is_polling:
            raise HeadraceError("poll() is running already in another task; a consumer is for one at a time")
        self._is_polling = True
        deadline = Deadline(self._clock, timeout_ms)
        try:
            while True:
                if self._subscription.must_refresh():
                    fetcher.refresh()
                if self._membership is not None:
                    await self._membership.poll(deadline)
                    self._raise_if_closed()
                self._commit_if_due()
                taken = take()
                if taken:
                    fetcher.wake()
                    return taken
                fetcher.raise_error()
                if deadline.has_passed():
                    return taken
                fetcher.wake()
                await self._notifier.wait(min(LOOK_UP_MS, deadline.left_ms()))
                self._raise_if_closed()
        finally:
            self._is_polling = False
            if self._membership is not None:
                self._membership.poll_ended()

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        # A generator: a method __anext__ would cost a coroutine a record.
        while True:
            for record in self.begin_round(await self.next_round()):
                yield record

    def begin_round(self, records: list[ConsumedRecord]) -> Iterator[ConsumedRecord]:
        """An iterator of these; what it has not given yet is not committed."""
        return self._handout.begin_round(records)

    async def next_round(self) -> list[ConsumedRecord]:
        """Records for an iteration, waited for as long as it takes."""
        limit = self.config.max_poll_records
        while True:
            records = await self._poll(LOOK_UP_MS, lambda: self._handout.take_round(limit))
            if records:
                return records

    def take_now(self, max_records: int | None = None, *, is_round: bool = False) -> list[ConsumedRecord]:
        """What is there, or nothing if a poll has anything else to do. For the thread of the user of a blocking
        consumer, who saves the way to the loop's thread; he must not use the consumer on another thread meanwhile,
        and wakes the fetcher afterwards (:meth:`wake`)."""
        if self._is_closed or self._fetcher is None or self._fetcher.has_error or self._is_polling:
            return []
        if self._next_commit_ms is not None and self._clock.monotonic_ms() >= self._next_commit_ms:
            return []
        if self._membership is not None:
            if self._membership.is_due or self._subscription.must_refresh():
                return []
            self._membership.polled()
        limit = self.config.max_poll_records if max_records is None else max_records
        return self._handout.take_round(limit) if is_round else self._handout.take(limit)

    @property
    def is_to_wake(self) -> bool:
        """Whether what was taken makes room for more."""
        return self._fetcher is not None and self._fetcher.is_to_wake

    def wake(self) -> None:
        if self._fetcher is not None:
            self._fetcher.wake()

    # -- commits

    async def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commits these offsets, of the next record to read each, or those of all that was handed out. Waits for it.

        :raises MemberFenced: if the group has gone on without this consumer.
        """
        await self._running()
        await self._group_offsets().commit(self._to_commit(offsets), timeout_ms=timeout_ms)

    def commit_nowait(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> asyncio.Task[None]:
        """Commits in the background; the callback is told of the end. Commits stay in order."""
        self._raise_if_closed()
        task = asyncio.get_running_loop().create_task(
            self._commit_and_tell(self._group_offsets().commit, self._to_commit(offsets), callback)
        )
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)
        return task

    async def _commit_and_tell(
        self,
        commit: Callable[..., Any],
        offsets: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
    ) -> None:
        try:
            await self._running()
            await commit(offsets)
        except HeadraceError as error:
            if callback is None:
                logger.warning("a commit in the background failed: %s", error)
            else:
                callback(offsets, error)
        else:
            if callback is not None:
                callback(offsets, None)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._handout.consumed()
        return {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }

    def _commit_if_due(self) -> None:
        if not self.config.enable_auto_commit:
            return
        now_ms = self._clock.monotonic_ms()
        if self._next_commit_ms is None:
            self._next_commit_ms = now_ms + self.config.auto_commit_interval_ms
        elif now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self.config.auto_commit_interval_ms
            if self._handout.consumed():
                self.commit_nowait()

    async def _commit_before_rebalance(self) -> None:
        """Nothing that was handed out is read again by others; if it fails, some is."""
        if not self.config.enable_auto_commit or self._offsets is None:
            return
        try:
            await self._offsets.commit(self._handout.consumed(), timeout_ms=_LAST_COMMIT_MS)
        except HeadraceError as error:
            logger.warning("what was read last is not committed: %s", error)
