"""Group coordination, wired into a broker: which partitions of ``__consumer_offsets`` it loads, and when.

Those that are there at the start are loaded while requests are served already; groups of a partition that is not
through are answered with COORDINATOR_LOAD_IN_PROGRESS. The topic is made when a client first looks for a coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import cached_property
from logging import getLogger
from time import perf_counter
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.internal_topics import GROUPS
from headrace.groups.context import GroupContext, KnownTopic
from headrace.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.metadata_cache import MetadataCache, TopicInfo
    from headrace.groups.coordinator import GroupCoordinator
    from headrace.groups.shard import GroupShard

logger = getLogger(__name__)

#: How long loading may hold the loop before others get a turn.
_SLICE_S = 0.005


class GroupService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._to_load: list[Iterator[int]] = []
        self._loader: asyncio.Task[None] | None = None

    @cached_property
    def coordinator(self) -> GroupCoordinator:
        """Made, and imported, when the first group comes: a start does not pay for it."""
        from headrace.groups.coordinator import GroupCoordinator

        broker = self._broker
        context = GroupContext(broker.clock, broker.timer, broker.config, _KnownTopics(broker.metadata))
        return GroupCoordinator(context, lambda: broker.internal_topics.partition_count(GROUPS))

    def start(self) -> None:
        if self._broker.internal_topics.exists(GROUPS):
            self._take_over()

    async def stop(self) -> None:
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])

    async def ensure(self) -> None:
        """Somebody looks for a coordinator: the topic is made if it is not there."""
        await self._broker.internal_topics.ensure(GROUPS)
        self._take_over()

    def unload(self, index: int) -> None:
        """The partition's log is gone."""
        self.coordinator.unload(index)

    async def expire_offsets(self) -> None:
        """Forgets offsets that were kept for long enough, a shard at a time."""
        for shard in self._shards():
            from headrace.groups.committing import expire

            try:
                expire(shard)
            except (KafkaError, OSError) as error:
                logger.warning("offsets of partition %d cannot be expired now: %s", shard.index, error)
            await asyncio.sleep(0)

    def topic_deleted(self, name: str) -> None:
        """Nobody has read anything of a topic that is not there."""
        for shard in self._shards():
            try:
                shard.write(shard.offsets.topic_deleted_records(name))
            except (KafkaError, OSError) as error:
                logger.warning("offsets of the deleted topic %s are kept in partition %d: %s", name, shard.index, error)

    def _shards(self) -> list[GroupShard]:
        return self.coordinator.shards() if "coordinator" in self.__dict__ else []  # else there never was a group

    def _take_over(self) -> None:
        """Starts to load the partitions that we lead and do not have yet."""
        broker, coordinator = self._broker, self.coordinator
        for index in range(broker.internal_topics.partition_count(GROUPS)):
            partition = broker.partitions.get(GROUPS, index)
            if partition is None or coordinator.has(index):
                continue
            loading = coordinator.load(broker.internal_topics.journal(GROUPS, index))
            if partition.log.log_start_offset == partition.log.next_offset:
                for _ in loading:
                    pass
            else:
                self._to_load.append(loading)
        if self._to_load and self._loader is None:
            self._loader = broker.loop.create_task(self._load())

    async def _load(self) -> None:
        slice_ends_at = perf_counter() + _SLICE_S
        try:
            while self._to_load:
                for _ in self._to_load.pop():
                    if perf_counter() >= slice_ends_at:
                        await asyncio.sleep(0)
                        slice_ends_at = perf_counter() + _SLICE_S
        finally:
            self._loader = None


class _KnownTopics:
    """``groups.context.TopicLookup`` over the broker's metadata."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    @property
    def version(self) -> int:
        return self._metadata.version

    def topic(self, name: str) -> KnownTopic | None:
        return self._known(self._metadata.get(name))

    def topic_by_id(self, topic_id: UUID) -> KnownTopic | None:
        return self._known(self._metadata.get_by_id(topic_id))

    def all_topics(self) -> Iterable[KnownTopic]:
        return (self._to_known(topic) for topic in self._metadata)

    def _known(self, topic: TopicInfo | None) -> KnownTopic | None:
        return None if topic is None else self._to_known(topic)

    def _to_known(self, topic: TopicInfo) -> KnownTopic:
        nodes = self._metadata.nodes
        racks = tuple(
            frozenset(rack for id_ in partition.replicas if id_ in nodes and (rack := nodes[id_].rack) is not None)
            for partition in topic.partitions
        )
        return KnownTopic(topic.name, topic.topic_id, len(topic.partitions), racks)
