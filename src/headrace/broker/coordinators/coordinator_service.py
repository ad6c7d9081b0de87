"""A coordinator, wired into a broker: which partitions of its internal topic are loaded, and when.

Those that are there at the start are loaded while requests are served already; what belongs to a partition that is not
through is answered with COORDINATOR_LOAD_IN_PROGRESS. The topic is made when a client first looks for a coordinator.

In a cluster a shard comes and goes with the leadership of its partition. It changes its state as soon as a record is in
its own log; but what a client is told waits until all of the partition's log, as it is then, is committed
(:meth:`CoordinatorService.replicated`). So nobody hears of anything that the next leader may not know, be it his own
change, that of another, or the repetition of a request whose answer was lost. What was not committed when leadership
goes is forgotten with the shard. Alone a write is committed when it is done, and none of this is in the way.

To whom a name belongs hangs on the number of partitions. In a cluster that is read from the tree, once: what brokers
are told of a topic may for a while be a part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.coordination.interface import CoordinationError
from headrace.coordination.paths import topic_path
from headrace.coordination.znodes import TopicAssignment
from headrace.event_loop import cancel_and_wait
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    NotLeaderOrFollower,
)
from headrace.replication.coordinator import ShardedCoordinator
from headrace.replication.journal import Journal

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.replication.partition import Partition

#: How long loading may hold the loop before others get a turn.
_SLICE_S = 0.005
#: After how long it is looked again whether a write is committed that was not in time.
_LOOK_AGAIN_S = 0.1
_LOOK_FOR_METADATA_S = 0.01

C = TypeVar("C", bound=ShardedCoordinator[Any])


class CoordinatorService(Generic[C]):
    """Subclasses say which ``topic``, and make the ``coordinator`` when it is first needed: starting does not."""

    topic: str

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._to_load: list[Iterator[int]] = []
        self._loader: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._partition_count: int | None = None

    @property
    def coordinator(self) -> C:
        raise NotImplementedError

    @property
    def commit_timeout_ms(self) -> int:
        """How long an answer may wait for the followers."""
        return self._broker.config.int("offsets.commit.timeout.ms")

    def start(self) -> None:
        if self._broker.internal_topics.exists(self.topic):
            self._take_over()

    async def stop(self) -> None:
        await cancel_and_wait([*self._waiting, *([] if self._loader is None else [self._loader])])

    async def settle(self) -> None:
        """Waits until all that is being loaded is."""
        if self._loader is not None:
            await asyncio.wait([self._loader])

    async def ensure(self) -> None:
        """Somebody looks for a coordinator: the topic is made if it is not there."""
        await self._broker.internal_topics.ensure(self.topic)
        if self._broker.cluster is None:
            self._take_over()
        else:
            await self.learn_partition_count()

    def partition_count(self) -> int:
        """
        :raises CoordinatorLoadInProgress: if it is not known yet, and will be.
        :raises NotCoordinator: if it is not known, as nobody has asked and we lead none of them.
        """
        if self._broker.cluster is None:
            return self._broker.internal_topics.partition_count(self.topic)
        if self._partition_count is None:
            if self.coordinator.is_loading or self.coordinator.shards():
                raise CoordinatorLoadInProgress(f"it is not known yet how many partitions {self.topic} has")
            raise NotCoordinator(f"this broker leads no partition of {self.topic}")
        return self._partition_count

    async def learn_partition_count(self) -> None:
        """
        :raises CoordinatorNotAvailable: if there is no such topic, or nobody can tell.
        """
        if self._partition_count is not None:
            return
        try:
            data, _ = await self._broker.coordination.get(topic_path(self.topic))
        except CoordinationError as error:
            raise CoordinatorNotAvailable(f"the tree does not say how many partitions {self.topic} has") from error
        self._partition_count = len(TopicAssignment.from_json(data).partitions)

    def topic_deleted(self, name: str) -> None:
        if name == self.topic:
            self._partition_count = None

    # -- whose partitions are ours ----------------------------------------------------------------------------------

    def became_leader(self, index: int) -> None:
        """We lead the partition from now on, or lead on in another epoch."""
        partition = self._broker.partitions.get(self.topic, index)
        assert partition is not None, f"{self.topic}-{index} cannot be led: it is not here"
        epoch = self.coordinator.epoch_of(index)
        if epoch == partition.leader_epoch:
            return
        if epoch is not None and epoch + 1 == partition.leader_epoch:
            self.coordinator.renew(index)  # nobody else can have written in between
            return
        self.unload(index)
        self._take(index, partition)

    def resigned(self, index: int) -> None:
        """Another broker leads the partition from now on, or none."""
        self.unload(index)

    def unload(self, index: int) -> None:
        """The partition's log is gone, or not ours to write."""
        self.coordinator.unload(index)

    def _take_over(self) -> None:
        """Starts to load the partitions that we lead and do not have yet."""
        broker, coordinator = self._broker, self.coordinator
        for index in range(broker.internal_topics.partition_count(self.topic)):
            partition = broker.partitions.get(self.topic, index)
            if partition is not None and partition.is_leader and not coordinator.has(index):
                self._take(index, partition)

    def _take(self, index: int, partition: Partition) -> None:
        broker, key = self._broker, (self.topic, index)
        journal = Journal(
            partition,
            broker.clock,
            on_write=lambda: broker.delayed_fetch.check_and_complete(key),
            wait=self._call_when_committed,
        )
        loading = self.coordinator.load(journal)
        if partition.log.log_start_offset == partition.log.next_offset and broker.cluster is None:
            for _ in loading:
                pass
            return
        self._to_load.append(loading)
        if self._loader is None:
            self._loader = broker.loop.create_task(self._load())

    async def _load(self) -> None:
        try:
            if self._broker.cluster is not None:
                await self._await_metadata()
            slice_ends_at = perf_counter() + _SLICE_S
            while self._to_load:
                for _ in self._to_load.pop():
                    if perf_counter() >= slice_ends_at:
                        await asyncio.sleep(0)
                        slice_ends_at = perf_counter() + _SLICE_S
        finally:
            self._loader = None  # in one go with finding nothing to load, so that whatever comes then is not left lying

    async def _await_metadata(self) -> None:
        """A broker may be told to lead before it is told of the topics that there are. Groups would take partitions
        away that nobody has heard of yet."""
        while self.coordinator.is_loading:
            with suppress(CoordinatorNotAvailable):
                await self.learn_partition_count()
                if self._broker.metadata.get(self.topic) is not None:
                    return
            await asyncio.sleep(_LOOK_FOR_METADATA_S)

    # -- what is committed ------------------------------------------------------------------------------------------

    async def replicated(self, name: str) -> None:
        """Waits until all that was written by now for the shard of that name is committed: then a client may be told
        what follows from it. To be called with nothing awaited since the shard was looked at. Alone it always is.

        :raises NotCoordinator: if another broker coordinates it now; then what was written may be lost.
        :raises CoordinatorNotAvailable: if it takes too long; then what was written may become committed yet.
        """
        broker, coordinator = self._broker, self.coordinator
        if broker.cluster is None:
            return
        index = coordinator.index_of(name)
        shard, partition = coordinator.active(index), broker.partitions.get(self.topic, index)
        if shard is None or partition is None:
            raise NotCoordinator(f"this broker does not coordinate {name!r}")
        end_offset = partition.log.next_offset
        if partition.high_watermark >= end_offset:
            return
        from headrace.broker.coordinators.committed import committed

        try:
            await committed(broker, [(partition, end_offset)], self.commit_timeout_ms)
        except NotLeaderOrFollower as error:
            raise NotCoordinator(str(error)) from error
        except KafkaError as error:
            raise CoordinatorNotAvailable(str(error)) from error
        if coordinator.active(index) is not shard:
            raise NotCoordinator(f"another broker has coordinated {name!r} in between")

    def _call_when_committed(self, partition: Partition, end_offset: int, then: Callable[[], None]) -> None:
        task = self._broker.loop.create_task(self._wait_and_call(partition, end_offset, then))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _wait_and_call(self, partition: Partition, end_offset: int, then: Callable[[], None]) -> None:
        from headrace.broker.coordinators.committed import committed

        while True:
            try:
                await committed(self._broker, [(partition, end_offset)], self.commit_timeout_ms)
            except NotLeaderOrFollower:
                return  # whoever leads it will decide
            except KafkaError:
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                then()
                return
