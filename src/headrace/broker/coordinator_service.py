"""A coordinator, wired into a broker: which partitions of its internal topic are loaded, and when.

Those that are there at the start are loaded while requests are served already; what belongs to a partition that is not
through is answered with COORDINATOR_LOAD_IN_PROGRESS. The topic is made when a client first looks for a coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.replication.coordinator import ShardedCoordinator

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

#: How long loading may hold the loop before others get a turn.
_SLICE_S = 0.005

C = TypeVar("C", bound=ShardedCoordinator[Any])


class CoordinatorService(Generic[C]):
    """Subclasses say which ``topic``, and make the ``coordinator`` when it is first needed: starting does not."""

    topic: str

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._to_load: list[Iterator[int]] = []
        self._loader: asyncio.Task[None] | None = None

    @property
    def coordinator(self) -> C:
        raise NotImplementedError

    def start(self) -> None:
        if self._broker.internal_topics.exists(self.topic):
            self._take_over()

    async def stop(self) -> None:
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])

    async def settle(self) -> None:
        """Waits until all that is being loaded is."""
        if self._loader is not None:
            await asyncio.wait([self._loader])

    async def ensure(self) -> None:
        """Somebody looks for a coordinator: the topic is made if it is not there."""
        await self._broker.internal_topics.ensure(self.topic)
        self._take_over()

    def unload(self, index: int) -> None:
        """The partition's log is gone."""
        self.coordinator.unload(index)

    def _take_over(self) -> None:
        """Starts to load the partitions that we lead and do not have yet."""
        broker, coordinator = self._broker, self.coordinator
        for index in range(broker.internal_topics.partition_count(self.topic)):
            partition = broker.partitions.get(self.topic, index)
            if partition is None or coordinator.has(index):
                continue
            loading = coordinator.load(broker.internal_topics.journal(self.topic, index))
            if partition.log.log_start_offset == partition.log.next_offset:
                for _ in loading:
                    pass
            else:
                self._to_load.append(loading)
        if self._to_load and self._loader is None:
            self._loader = broker.loop.create_task(self._load())
            self._loader.add_done_callback(self._loaded)

    async def _load(self) -> None:
        slice_ends_at = perf_counter() + _SLICE_S
        while self._to_load:
            for _ in self._to_load.pop():
                if perf_counter() >= slice_ends_at:
                    await asyncio.sleep(0)
                    slice_ends_at = perf_counter() + _SLICE_S

    def _loaded(self, _: object) -> None:
        self._loader = None
