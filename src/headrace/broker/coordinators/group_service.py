"""Runs the group coordinator on a broker. Also expires committed offsets, and deletes those of deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.broker.coordinators.coordinator_service import CoordinatorContext, CoordinatorService
from headrace.broker.coordinators.internal_topics import GROUPS
from headrace.groups.context import GroupContext, KnownTopic
from headrace.protocol.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.configs.group_overrides import GroupConfigs
    from headrace.broker.coordinators.placement import CoordinatorPlacement
    from headrace.broker.metadata_cache import MetadataCache, TopicInfo
    from headrace.groups.coordinator import GroupCoordinator
    from headrace.groups.shard import GroupShard

logger = getLogger(__name__)


class GroupService(CoordinatorService["GroupCoordinator"]):
    topic = GROUPS

    def __init__(
        self, context: CoordinatorContext, placement: CoordinatorPlacement, group_configs: GroupConfigs
    ) -> None:
        super().__init__(context, placement)
        self._group_configs = group_configs

    @cached_property
    def coordinator(self) -> GroupCoordinator:
        from headrace.groups.coordinator import GroupCoordinator

        runtime, topics = self._runtime, _KnownTopics(self._metadata)
        context = GroupContext(runtime.clock, runtime.timer, self._config, topics, self._group_configs.of)
        return GroupCoordinator(context, self.partition_count)

    async def expire_offsets(self) -> None:
        """Deletes offsets whose retention time has passed, one shard at a time."""
        for shard in self._shards():
            from headrace.groups.committing import expire

            try:
                expire(shard)
            except (KafkaError, OSError) as error:
                logger.warning("offsets of partition %d cannot be expired now: %s", shard.index, error)
            await asyncio.sleep(0)

    def topic_deleted(self, name: str) -> None:
        """Deletes the offsets that groups have committed for a deleted topic."""
        super().topic_deleted(name)
        for shard in self._shards():
            try:
                shard.write(shard.offsets.topic_deleted_records(name))
            except (KafkaError, OSError) as error:
                logger.warning("offsets of the deleted topic %s are kept in partition %d: %s", name, shard.index, error)

    def _shards(self) -> list[GroupShard]:
        """The loaded shards. A coordinator that was never used has none, and is not made for this."""
        return self.coordinator.shards() if "coordinator" in self.__dict__ else []


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
