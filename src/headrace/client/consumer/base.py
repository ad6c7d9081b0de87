"""The part of a consumer that polls for nothing: its parts put together, positions, and questions to the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.committed_offsets import GroupOffsets
from headrace.client.consumer.fetch_positions import FetchPositions
from headrace.client.consumer.fetch_requests import FetchLimits
from headrace.client.consumer.fetcher import Fetcher
from headrace.client.consumer.offset_lookup import FoundOffset, OffsetLookup
from headrace.client.consumer.poll_buffer import Handout
from headrace.client.consumer.subscription import Subscription
from headrace.client.errors import ClientClosed, HeadraceError, KafkaTimeout, NotAssigned
from headrace.client.notifier import Notifier
from headrace.client.offset_reset import (
    EARLIEST,
    EARLIEST_TIMESTAMP,
    LATEST,
    LATEST_TIMESTAMP,
    OffsetReset,
    parse_offset_reset,
)
from headrace.client.retry import Deadline
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, PartitionInfo, TopicInfo, TopicPartition
from headrace.runtime.clock import Clock

#: Where nothing calls for it earlier, a poll that waits looks up so often whether something is due.
LOOK_UP_MS = 1_000

#: How many full answers of a partition may wait to be handed out before no more is asked for.
BUFFERED_FETCHES = 4

#: For the names of those that were given none.
_numbers = count(1)


class ConsumerBase:
    def __init__(self, config: ConsumerConfig, clock: Clock | None = None) -> None:
        if not config.client_id:
            name = "consumer" if config.group_id is None else f"consumer-{config.group_id}"
            config = replace(config, client_id=f"{name}-{next(_numbers)}")
        self.config = config
        self._cluster = Cluster(config, clock=clock)
        self._clock = self._cluster.clock
        is_committed = config.isolation_level == "read_committed"
        self._positions = FetchPositions(
            parse_offset_reset(config.auto_offset_reset),
            read_committed=is_committed,
            buffer_bytes=config.max_partition_fetch_bytes * BUFFERED_FETCHES,
            max_bytes=config.max_partition_fetch_bytes,
        )
        self._handout = Handout(
            self._positions,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            check_crcs=config.check_crcs,
        )
        self._limits = FetchLimits(
            config.fetch_max_wait_ms, config.fetch_min_bytes, config.fetch_max_bytes, is_committed, config.client_rack
        )
        self._lookup = OffsetLookup(self._cluster, read_committed=is_committed, create=config.allow_auto_create_topics)
        self._offsets = None if config.group_id is None else GroupOffsets(self._cluster, config.group_id)
        self._notifier = Notifier()
        self._subscription = Subscription(
            self._cluster,
            config,
            self._positions,
            self._handout,
            commit=self._commit_before_rebalance,
            moved=self._moved,
            notify=self._notifier.notify,
        )
        self._fetcher: Fetcher | None = None
        self._is_closed = False

    async def _commit_before_rebalance(self) -> None:
        raise NotImplementedError

    def _moved(self) -> None:
        if self._fetcher is not None:
            self._fetcher.moved()

    # -- beginning and end

    async def start(self) -> None:
        """Finds the cluster. Other calls do so too, if this was not called.

        :raises BrokerUnreachable: if no broker answers in time.
        """
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
        if self._fetcher is None:
            await self._cluster.refresh(create=self.config.allow_auto_create_topics)
        if self._fetcher is None:
            self._fetcher = Fetcher(
                self._cluster,
                self._positions,
                self._limits,
                lookup=self._lookup,
                committed=None if self._offsets is None else self._offsets.fetch,
                refresh=self._subscription.refresh,
                notify=self._notifier.notify,
            )
            self._fetcher.wake()

    async def _running(self) -> Fetcher:
        if self._fetcher is None or self._is_closed:
            await self.start()
        assert self._fetcher is not None
        return self._fetcher

    # -- what it reads

    def assignment(self) -> set[TopicPartition]:
        """The partitions that it reads now."""
        return self._positions.assignment()

    def subscription(self) -> set[str]:
        """The topics that it has subscribed to."""
        return set(self._subscription.topics())

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until they are resumed. All of them keep being assigned."""
        wanted = self._assigned(partitions)
        self._handout.give_back(wanted)
        self._positions.pause(wanted)
        self._moved()

    def resume(self, *partitions: TopicPartition) -> None:
        self._positions.resume(self._assigned(partitions))
        self._moved()

    def paused(self) -> set[TopicPartition]:
        return self._positions.paused()

    def _assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """
        :raises NotAssigned: if one is not.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        assigned = self._positions.assignment()
        for partition in wanted:
            if partition not in assigned:
                known = ", ".join(map(str, sorted(assigned))) or "no partition"
                raise NotAssigned(f"{partition} is not assigned to this consumer; it reads {known}")
        return wanted

    # -- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """The next record that is handed out is that of the offset, or the next one that there is."""
        (partition,) = self._assigned([partition])
        where = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        self._handout.drop({partition})
        self._positions.seek(partition, where.offset, where.leader_epoch)
        self._moved()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Of these partitions, or of all."""
        self._seek_by(EARLIEST, partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek_by(LATEST, partitions)

    def _seek_by(self, reset: OffsetReset, partitions: Iterable[TopicPartition]) -> None:
        wanted = self._assigned(partitions) or list(self._positions.assignment())
        self._handout.drop(wanted)
        for partition in wanted:
            self._positions.seek_by(partition, reset)
        self._moved()

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record to be handed out, looked up if it is not known.

        :raises KafkaTimeout: if it could not be looked up in time.
        """
        (partition,) = self._assigned([partition])
        fetcher = await self._running()
        fetcher.wake()
        deadline = Deadline(self._clock, self.config.api_timeout_ms if timeout_ms is None else timeout_ms)
        while (position := self._handout.position(partition)) is None:
            fetcher.raise_error()
            if deadline.has_passed():
                raise KafkaTimeout(f"the position of {partition} was not found within {deadline.timeout_ms:.0f} ms")
            await self._notifier.wait(min(LOOK_UP_MS, deadline.left_ms()))
        return position

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the partition's end is ahead, as the last fetch told it; None before the first one."""
        (partition,) = self._assigned([partition])
        return self._handout.lag(partition)

    async def lag(self, *partitions: TopicPartition, timeout_ms: float | None = None) -> dict[TopicPartition, int]:
        """How many offsets the end of each partition is ahead now; of all that it reads, if none are named."""
        wanted = self._assigned(partitions) or sorted(self._positions.assignment())
        ends = await self.end_offsets(*wanted, timeout_ms=timeout_ms)
        return {one: max(0, end - await self.position(one, timeout_ms=timeout_ms)) for one, end in ends.items()}

    # -- questions

    async def committed(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; of all partitions that it reads, if none are named."""
        await self._running()
        wanted = [TopicPartition(*one) for one in partitions] or sorted(self._positions.assignment())
        return await self._group_offsets().fetch(wanted, timeout_ms=timeout_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Its place in the group, for a transaction that commits its offsets."""
        offsets = self._group_offsets()
        identity = offsets.identity()
        assert self.config.group_id is not None
        return ConsumerGroupMetadata(
            self.config.group_id, identity.generation, identity.member_id, identity.group_instance_id
        )

    def _group_offsets(self) -> GroupOffsets:
        if self._offsets is None:
            raise HeadraceError("without a group_id there is nothing committed, and nothing to commit to")
        return self._offsets

    async def beginning_offsets(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        found = await self._look_up(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms)
        return {partition: one.offset for partition, one in found.items()}

    async def end_offsets(
        self, *partitions: TopicPartition, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record will get; with read_committed, that of the first open transaction."""
        found = await self._look_up(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms)
        return {partition: one.offset for partition, one in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Of each partition the first record that is not older than the time; None if there is none."""
        for partition, at_ms in timestamps_ms.items():
            if at_ms < 0:
                raise ValueError(f"{at_ms} is no time to look for in {TopicPartition(*partition)}")
        found = await self._look_up(timestamps_ms, timeout_ms)
        return {partition: one if one.offset >= 0 else None for partition, one in found.items()}

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        await self._running()
        wanted = {TopicPartition(*partition): at_ms for partition, at_ms in timestamps.items()}
        return await self._lookup.find(wanted, timeout_ms=timeout_ms)

    async def partitions_for(self, topic: str, *, timeout_ms: float | None = None) -> list[PartitionInfo]:
        """
        :raises UnknownTopic: if it is not there.
        """
        await self._running()
        create = self.config.allow_auto_create_topics
        return await self._cluster.partitions_of(topic, create=create, timeout_ms=timeout_ms)

    async def list_topics(self, *, timeout_ms: float | None = None) -> dict[str, TopicInfo]:
        await self._running()
        await self._cluster.refresh(all_topics=True, create=False, timeout_ms=timeout_ms)
        return dict(self._cluster.metadata.topics)
