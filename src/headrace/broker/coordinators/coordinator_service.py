"""Runs a coordinator on a broker: loads the partitions of its internal topic that this broker leads.

A coordinator loads the partitions that exist at the start while the broker already serves requests. A request for a
group or a transactional id whose partition is still loading is answered with COORDINATOR_LOAD_IN_PROGRESS. The internal
topic is created when a client first looks for a coordinator.

``placement.py`` hides what differs between a lone broker and a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from headrace.event_loop import cancel_and_wait
from headrace.protocol.errors import KafkaError, NotLeaderOrFollower
from headrace.replication.coordinator import ShardedCoordinator

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.coordinators.internal_topics import InternalTopics
    from headrace.broker.coordinators.placement import CoordinatorPlacement
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.runtime import BrokerRuntime
    from headrace.replication.partition import Partition
    from headrace.replication.partitions import Partitions

#: How long loading may hold the event loop before other requests get a turn.
_SLICE_S = 0.005
#: How soon a write that was not committed in time is checked again.
_CHECK_AGAIN_S = 0.1

C = TypeVar("C", bound=ShardedCoordinator[Any])


class CoordinatorContext(NamedTuple):
    """The parts of their broker that both coordinators use."""

    runtime: BrokerRuntime
    config: BrokerConfig
    partitions: Partitions
    internal_topics: InternalTopics
    commit_waits: CommitWaits
    metadata: MetadataCache


class CoordinatorService(Generic[C]):
    """A subclass names its ``topic``, and makes the ``coordinator`` on first use: a start does not pay for it."""

    topic: str

    def __init__(self, context: CoordinatorContext, placement: CoordinatorPlacement) -> None:
        self.placement = placement
        self._runtime = context.runtime
        self._config = context.config
        self._partitions = context.partitions
        self._internal_topics = context.internal_topics
        self._commit_waits = context.commit_waits
        self._metadata = context.metadata
        self._to_load: list[Iterator[int]] = []
        self._loader: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def coordinator(self) -> C:
        raise NotImplementedError

    @property
    def commit_timeout_ms(self) -> int:
        """How long an answer may wait for the followers."""
        return self._config.int("offsets.commit.timeout.ms")

    def start(self) -> None:
        if self._internal_topics.exists(self.topic):
            self._load_led_partitions()

    async def stop(self) -> None:
        await cancel_and_wait([*self._waiting, *([] if self._loader is None else [self._loader])])

    async def ensure(self) -> None:
        """Creates the internal topic if it does not exist: a client looks for a coordinator."""
        await self._internal_topics.ensure(self.topic)
        await self.placement.topic_exists(self._load_led_partitions)

    def partition_count(self) -> int:
        """
        :raises CoordinatorLoadInProgress: if the number is not known yet, and will be.
        :raises NotCoordinator: if the number is not known, and this broker leads no partition of the topic.
        """
        return self.placement.partition_count(self.coordinator)

    async def replicated(self, name: str) -> None:
        """Waits until a client may be told what follows from the shard of ``name``: see ``CoordinatorPlacement``.

        :raises NotCoordinator: if another broker coordinates ``name`` now.
        :raises CoordinatorNotAvailable: if it takes too long.
        """
        await self.placement.replicated(self.coordinator, name, self.commit_timeout_ms)

    def topic_deleted(self, name: str) -> None:
        if name == self.topic:
            self.placement.topic_deleted()

    # -- which partitions this broker coordinates -------------------------------------------------------------------

    def became_leader(self, index: int) -> None:
        """This broker leads the partition from now on, or leads it in a new epoch."""
        partition = self._partitions.get(self.topic, index)
        assert partition is not None, f"{self.topic}-{index} cannot be led: this broker does not have it"
        epoch = self.coordinator.epoch_of(index)
        if epoch == partition.leader_epoch:
            return
        if epoch is not None and epoch + 1 == partition.leader_epoch:
            self.coordinator.begin_next_epoch(index)  # no other broker can have written in between
            return
        self.unload(index)
        self._load_partition(partition)

    def resigned(self, index: int) -> None:
        """Another broker leads the partition from now on, or no broker does."""
        self.unload(index)

    def unload(self, index: int) -> None:
        """The partition's log is deleted, or this broker may not write to it any more."""
        self.coordinator.unload(index)

    def _load_led_partitions(self) -> None:
        """Starts to load the partitions that this broker leads and has not loaded."""
        for index in range(self._internal_topics.partition_count(self.topic)):
            partition = self._partitions.get(self.topic, index)
            if partition is not None and partition.is_leader and not self.coordinator.has(index):
                self._load_partition(partition)

    def _load_partition(self, partition: Partition) -> None:
        journal = self._internal_topics.journal(partition, self._call_when_committed)
        loading = self.coordinator.load(journal)
        if partition.log.log_start_offset == partition.log.next_offset and self.placement.loads_empty_at_once:
            for _ in loading:
                pass
            return
        self._to_load.append(loading)
        if self._loader is None:
            self._loader = self._runtime.loop.create_task(self._load())

    async def _load(self) -> None:
        try:
            await self.placement.wait_to_load(self.coordinator)
            slice_ends_at = perf_counter() + _SLICE_S
            while self._to_load:
                for _ in self._to_load.pop():
                    if perf_counter() >= slice_ends_at:
                        await asyncio.sleep(0)
                        slice_ends_at = perf_counter() + _SLICE_S
        finally:
            # Nothing is awaited after the list was found empty, so a partition that comes now starts a new task.
            self._loader = None

    # -- what is committed ------------------------------------------------------------------------------------------

    def _call_when_committed(self, partition: Partition, end_offset: int, then: Callable[[], None]) -> None:
        task = self._runtime.loop.create_task(self._wait_and_call(partition, end_offset, then))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _wait_and_call(self, partition: Partition, end_offset: int, then: Callable[[], None]) -> None:
        while True:
            try:
                await self._commit_waits.committed([(partition, end_offset)], self.commit_timeout_ms)
            except NotLeaderOrFollower:
                return  # the new leader decides
            except KafkaError:
                await asyncio.sleep(_CHECK_AGAIN_S)
            else:
                then()
                return
