"""Places the coordinators of a cluster: a shard moves with the leadership of its partition.

A shard changes its state as soon as a record is in its own log. But the answer to a client waits until the partition's
log, as it is at that moment, is committed (:meth:`ClusterPlacement.replicated`). So no client learns anything that the
next leader may not know: neither the client's own change, nor the change of another client, nor the result of a
repeated request whose first answer was lost. What was not committed is lost with the shard when leadership moves.

The partition that a name belongs to depends on the number of partitions. A broker reads that number from the tree,
once, because the metadata of a new topic may be incomplete for a short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.broker.coordinators.placement import AnyCoordinator, CoordinatorPlacement
from headrace.coordination.interface import CoordinationError
from headrace.coordination.paths import topic_path
from headrace.coordination.znodes import TopicAssignment
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)

if TYPE_CHECKING:
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.coordination.interface import Coordination
    from headrace.replication.partitions import Partitions

_CHECK_METADATA_EVERY_S = 0.01


class ClusterPlacement(CoordinatorPlacement):
    loads_empty_at_once = False

    def __init__(
        self,
        topic: str,
        coordination: Coordination,
        metadata: MetadataCache,
        partitions: Partitions,
        commit_waits: CommitWaits,
    ) -> None:
        self._topic = topic
        self._coordination = coordination
        self._metadata = metadata
        self._partitions = partitions
        self._commit_waits = commit_waits
        self._partition_count: int | None = None

    def partition_count(self, coordinator: AnyCoordinator) -> int:
        if self._partition_count is None:
            if coordinator.is_loading or coordinator.shards():
                raise CoordinatorLoadInProgress(
                    f"the number of partitions of {self._topic} is still being read; try again"
                )
            raise NotCoordinator(f"this broker leads no partition of {self._topic}")
        return self._partition_count

    async def learn_partition_count(self) -> None:
        if self._partition_count is not None:
            return
        try:
            data, _ = await self._coordination.get(topic_path(self._topic))
        except CoordinationError as error:
            raise CoordinatorNotAvailable(f"the tree does not say how many partitions {self._topic} has") from error
        self._partition_count = len(TopicAssignment.from_json(data).partitions)

    async def topic_exists(self, load_led_partitions: Callable[[], None]) -> None:  # noqa: ARG002  the controller says
        """The controller's requests say which partitions this broker leads; then they are loaded."""
        await self.learn_partition_count()

    def topic_deleted(self) -> None:
        self._partition_count = None

    async def wait_to_load(self, coordinator: AnyCoordinator) -> None:
        """A broker may become leader before it receives the metadata of all topics. A group that is loaded earlier
        would revoke partitions of topics that are not in the metadata yet."""
        while coordinator.is_loading:
            with suppress(CoordinatorNotAvailable):
                await self.learn_partition_count()
                if self._metadata.get(self._topic) is not None:
                    return
            await asyncio.sleep(_CHECK_METADATA_EVERY_S)

    async def replicated(self, coordinator: AnyCoordinator, name: str, timeout_ms: int) -> None:
        index = coordinator.index_of(name)
        shard, partition = coordinator.active(index), self._partitions.get(self._topic, index)
        if shard is None or partition is None:
            raise NotCoordinator(f"this broker does not coordinate {name!r}")
        end_offset = partition.log.next_offset
        if partition.high_watermark >= end_offset:
            return
        try:
            await self._commit_waits.committed([(partition, end_offset)], timeout_ms)
        except NotLeaderOrFollower as error:
            raise NotCoordinator(str(error)) from error
        except KafkaError as error:
            raise CoordinatorNotAvailable(str(error)) from error
        if coordinator.active(index) is not shard:
            raise NotCoordinator(f"another broker has coordinated {name!r} in between")
