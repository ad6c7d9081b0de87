"""AsyncConsumer: reads records of topics, alone or as a member of a group.

::

    async with AsyncConsumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
        async for record in consumer:
            ...

The consumer fetches records ahead in the background (``fetcher.py``), and its membership in the group runs there as
well. But everything that the user sees happens within :meth:`AsyncConsumer.poll`, and an iteration polls too:
partitions are assigned and revoked, callbacks run, and offsets are committed automatically. So ``enable.auto.commit``
commits the records that earlier polls have returned. ``max.poll.records`` limits the records of a poll, and the records
that an iteration takes at a time. A higher limit would not be faster, because records that live long cost the garbage
collector more.

One consumer is for one task: a second task that polls at the same time gets an error.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from headrace.client.config import ConsumerConfig
from headrace.client.consumer.assigned_partitions import CHECK_INTERVAL_MS
from headrace.client.consumer.committer import CommitCallback, Offsets
from headrace.client.consumer.fetch_positions import BatchToRead
from headrace.client.consumer.offset_lookup import FoundOffset
from headrace.client.consumer.parts import ConsumerParts, with_client_id
from headrace.client.consumer.subscription import Callback, Callbacks
from headrace.client.errors import HeadraceError
from headrace.client.membership.choice import new_membership
from headrace.client.metrics.registry import Metrics
from headrace.client.offset_reset import EARLIEST, EARLIEST_TIMESTAMP, LATEST, LATEST_TIMESTAMP
from headrace.client.retry import Deadline
from headrace.client.types import (
    ConsumedRecord,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PartitionInfo,
    TopicInfo,
    TopicPartition,
)
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

T = TypeVar("T")


class AsyncConsumer:
    """Reads records of topics. Options are those of ``ConsumerConfig``.

    ``start`` connects to the cluster. ``close`` leaves the group and disconnects. ``async with`` does both.
    """

    def __init__(
        self,
        *topics: str,
        config: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        **options: object,
    ) -> None:
        """
        :param topics: topics to subscribe to, as :meth:`subscribe` does.
        :param config: options by Kafka's names, ``{"group.id": "billing"}``.
        :param options: options by Python's names, ``group_id="billing"``; see ``config.ConsumerConfig``.
        """
        self.config = with_client_id(ConsumerConfig.load(config, **options))
        (
            self._cluster, self._fetcher, self._partitions, self._poll_buffer, self._poll_loop, self._subscription,
            self._committer, self._lookup, self._registry, self._metrics, self._group_metrics, self._telemetry,
        ) = ConsumerParts.build(self.config, clock, self.start)  # fmt: skip
        if topics:
            self.subscribe(topics)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Connects to the cluster. If it was not called, the first other call does it.

        :raises BrokerUnreachable: if no broker answers in time.
        """
        self._poll_loop.raise_if_closed()
        if not self._fetcher.is_started:
            await self._cluster.refresh(create=self.config.allow_auto_create_topics)
            self._fetcher.start()

    async def close(self) -> None:
        """Commits if ``enable.auto.commit`` is on, leaves the group, and disconnects."""
        if self._poll_loop.is_closed:
            return
        try:
            if self._fetcher.is_started:
                if self._poll_loop.membership is not None:
                    await self._poll_loop.leave_group()
                else:
                    await self._committer.commit_before_rebalance()
                await self._committer.wait()
        finally:
            self._poll_loop.close()
            await self._fetcher.stop()
            await self._telemetry.close()
            await self._cluster.close()

    def metrics(self) -> Metrics:
        """Returns the metrics of the consumer, under the names of Java's consumer; see docs/client-metrics.md."""
        return self._registry.metrics()

    async def client_instance_id(self, *, timeout_ms: float | None = None) -> UUID:
        """Returns the id under which a broker stores the metrics of this client; see docs/clients.md, telemetry."""
        await self.start()
        return await self._telemetry.client_instance_id(timeout_ms)

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

        The callbacks get a list of partitions, may be coroutine functions, and run within :meth:`poll`. Without
        ``on_lost``, lost partitions are passed to ``on_revoked``.
        """
        self._poll_loop.raise_if_closed()
        if self.config.group_id is None:
            raise ValueError("subscribe() needs the option group_id; without a group, use assign()")
        if self._poll_loop.membership is None and self._partitions.all():
            raise HeadraceError("this consumer got its partitions by assign(); call unsubscribe() first")
        self._subscription.change(topics, pattern, Callbacks(on_assigned, on_revoked, on_lost))
        if self._poll_loop.membership is None:
            self._poll_loop.membership = new_membership(
                self._cluster, self.config, self._subscription, self._group_metrics
            )
            self._committer.offsets.membership = self._poll_loop.membership
        else:
            self._poll_loop.membership.subscription_changed()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads exactly these partitions, without a group. Partitions that it had before keep their positions."""
        self._poll_loop.raise_if_closed()
        if self._poll_loop.membership is not None:
            raise HeadraceError("this consumer has subscribed to topics; call unsubscribe() first")
        self._subscription.set_partitions({TopicPartition(*partition) for partition in partitions})

    async def unsubscribe(self) -> None:
        """Gives up all partitions, and leaves the group."""
        self._poll_loop.raise_if_closed()
        await self._poll_loop.leave_group()
        self._subscription.clear()
        self._subscription.set_partitions(set())

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that the consumer reads now."""
        return self._partitions.all()

    def subscription(self) -> set[str]:
        """Returns the topics that the consumer has subscribed to."""
        return set(self._subscription.topics())

    def pause(self, *partitions: TopicPartition) -> None:
        """Returns no records of these partitions until :meth:`resume`. The partitions stay assigned."""
        self._partitions.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Returns records of paused partitions again."""
        self._partitions.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that are paused."""
        return self._partitions.paused()

    # -- records

    async def poll(self, timeout_ms: float = CHECK_INTERVAL_MS, max_records: int | None = None) -> list[ConsumedRecord]:
        """Returns records as soon as there are some; an empty list if the timeout passes first.

        :param max_records: the most records to return. Without it, ``max.poll.records``.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        return await self._poll(timeout_ms, lambda: self._poll_buffer.take(limit))

    async def poll_batches(
        self, timeout_ms: float = CHECK_INTERVAL_MS, *, max_bytes: int = 50 << 20
    ) -> list[BatchToRead]:
        """Returns whole batches as they were fetched, for callers that decode records by themselves.

        Each item has a partition, a batch, and the offset of the first record that the caller has not read yet.
        """
        return await self._poll(timeout_ms, lambda: self._poll_buffer.take_batches(max_bytes))

    async def poll_arrow(
        self, timeout_ms: float = CHECK_INTERVAL_MS, *, max_bytes: int = 50 << 20, include_headers: bool = False
    ) -> pyarrow.RecordBatch:
        """Returns records as rows of an Arrow RecordBatch, which pandas and polars can use as it is.

        The columns are topic, partition, offset, timestamp, timestamp_type, key and value (see ``arrow/reading.py``),
        and headers with ``include_headers``. The records are those of whole fetched batches, up to ``max_bytes``.
        Deserializers are not used. Needs ``headrace[arrow]``.
        """
        from headrace.client.arrow.tables import poll_arrow

        return await poll_arrow(
            self, timeout_ms, max_bytes=max_bytes, include_headers=include_headers, check_crcs=self.config.check_crcs
        )

    async def _poll(self, timeout_ms: float, take: Callable[[], list[T]]) -> list[T]:
        await self.start()
        return await self._poll_loop.poll(timeout_ms, take)

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        # A generator, because a method __anext__ would cost a coroutine per record.
        while True:
            for record in self.iterate(await self.poll_for_iteration()):
                yield record

    def iterate(self, records: list[ConsumedRecord]) -> Iterator[ConsumedRecord]:
        """Returns an iterator over the records. A record that it has not returned yet does not count as consumed."""
        return self._poll_buffer.iterate(records)

    async def poll_for_iteration(self) -> list[ConsumedRecord]:
        """Waits for records without a timeout."""
        limit = self.config.max_poll_records
        while True:
            records = await self._poll(CHECK_INTERVAL_MS, lambda: self._poll_buffer.take_for_iteration(limit))
            if records:
                return records

    # -- for the blocking consumer

    def take_now(self, max_records: int | None = None, *, is_iteration: bool = False) -> list[ConsumedRecord]:
        """Returns the records that are fetched already; none if a poll has anything else to do.

        The blocking consumer calls this method on the user's thread, to save the way to the event loop's thread. The
        user must not use the consumer on another thread at the same time. The caller wakes the fetcher afterwards
        (:attr:`has_room_again`, :meth:`wake`).
        """
        if not self._poll_loop.begin_shortcut():
            return []
        limit = self.config.max_poll_records if max_records is None else max_records
        return self._poll_buffer.take_for_iteration(limit) if is_iteration else self._poll_buffer.take(limit)

    @property
    def has_room_again(self) -> bool:
        """Whether the records that were taken make room for more, so that :meth:`wake` is useful."""
        return self._fetcher.has_room_again

    def wake(self) -> None:
        """Makes the fetcher look for more to fetch."""
        self._fetcher.wake()

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Moves a partition to an offset. The next record has this offset, or the next higher one that exists."""
        self._partitions.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves these partitions, or all that are assigned, to their first record."""
        self._partitions.seek_by(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves these partitions, or all that are assigned, behind their last record."""
        self._partitions.seek_by(LATEST, partitions)

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Returns the offset of the next record of a partition. Looks the offset up if it is not known yet.

        :raises KafkaTimeout: if the offset could not be looked up in time.
        """
        self._partitions.check([partition])
        await self.start()
        timeout_ms = self.config.api_timeout_ms if timeout_ms is None else timeout_ms
        return await self._partitions.position(partition, Deadline(self._cluster.clock, timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Returns how far the partition's end is ahead of the position, as of the last fetch; None before the first."""
        return self._partitions.lag(partition)

    async def lag(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """Asks the brokers how far the end of each partition is ahead of the position.

        Without partitions, for all that are assigned.
        """
        wanted = self._partitions.check(partitions) or sorted(self._partitions.all())
        ends = await self.end_offsets(*wanted, timeout_ms=timeout_ms)
        return {one: max(0, end - await self.position(one, timeout_ms=timeout_ms)) for one, end in ends.items()}

    # -- commits

    async def commit(self, offsets: Offsets | None = None, *, timeout_ms: float | None = None) -> None:
        """Commits offsets, and waits until they are committed.

        :param offsets: the offset of the next record to read, by partition. Without it, the offsets behind all records
            that were returned.
        :raises MemberFenced: if the group has given the partitions to other members.
        """
        with self._metrics.method_times.measure("commit_sync"):
            await self._committer.commit(offsets, timeout_ms)

    def commit_nowait(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> asyncio.Task[None]:
        """Commits in the background. The callback gets the offsets, and the error if there was one.

        Commits are sent in the order of the calls.
        """
        self._poll_loop.raise_if_closed()
        return self._committer.commit_nowait(offsets, callback)

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the offsets that the group has committed; None for partitions without one.

        Without partitions, for all that are assigned.
        """
        await self.start()
        wanted = [TopicPartition(*one) for one in partitions] or sorted(self._partitions.all())
        with self._metrics.method_times.measure("committed"):
            return await self._committer.offsets.fetch(wanted, timeout_ms=timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's place in its group, for a transaction that commits its offsets."""
        return self._committer.offsets.group_metadata()

    # -- questions to the brokers

    async def beginning_offsets(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset of the first record of each partition."""
        return await self._offsets_at(EARLIEST_TIMESTAMP, partitions, timeout_ms)

    async def end_offsets(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset of the next record of each partition.

        With ``read_committed``, the offset of the first record of an open transaction, if there is one.
        """
        return await self._offsets_at(LATEST_TIMESTAMP, partitions, timeout_ms)

    async def _offsets_at(
        self, timestamp: int, partitions: Iterable[TopicPartition], timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        found = await self._look_up(dict.fromkeys(partitions, timestamp), timeout_ms)
        return {partition: one.offset for partition, one in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Returns the first record of each partition at or after a timestamp; None if there is no such record."""
        for partition, at_ms in timestamps_ms.items():
            if at_ms < 0:
                raise ValueError(f"{TopicPartition(*partition)}: the timestamp must not be negative, but is {at_ms}")
        found = await self._look_up(timestamps_ms, timeout_ms)
        return {partition: one if one.offset >= 0 else None for partition, one in found.items()}

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        await self.start()
        wanted = {TopicPartition(*partition): at_ms for partition, at_ms in timestamps.items()}
        return await self._lookup.find(wanted, timeout_ms=timeout_ms)

    async def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """Returns the partitions of a topic.

        :raises UnknownTopic: if the topic does not exist.
        """
        await self.start()
        create = self.config.allow_auto_create_topics
        return await self._cluster.partitions_of(topic, create=create, timeout_ms=timeout_ms)

    async def list_topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        """Returns all topics by name."""
        await self.start()
        await self._cluster.refresh(all_topics=True, create=False, timeout_ms=timeout_ms)
        return dict(self._cluster.metadata.topics)
