"""Transaction coordination, wired into a broker: which partitions of ``__transaction_state`` it loads, and when.

Those that are there at the start are loaded while requests are served already; ids of a partition that is not through
are answered with COORDINATOR_LOAD_IN_PROGRESS. The topic is made when a client first needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cached_property
from logging import getLogger
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.broker.internal_topics import GROUPS, TRANSACTIONS
from headrace.protocol.errors import KafkaError, TransactionAbortable
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.transactions.coordinator import Identity, TransactionCoordinator
    from headrace.transactions.markers import LocalMarkers, Marker

logger = getLogger(__name__)

#: How long loading may hold the loop before others get a turn.
_SLICE_S = 0.005


class TransactionService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._to_load: list[Iterator[int]] = []
        self._loader: asyncio.Task[None] | None = None
        self._expiry: TimerTask | None = None

    @cached_property
    def markers(self) -> LocalMarkers:
        from headrace.transactions.markers import LocalMarkers

        return LocalMarkers(self._broker.partitions, self._broker.clock, self._marker_written)

    @cached_property
    def coordinator(self) -> TransactionCoordinator:
        """Made, and imported, when the first transactional id comes: a start does not pay for it."""
        from headrace.transactions.coordinator import TransactionCoordinator
        from headrace.transactions.shard import TransactionContext

        broker = self._broker
        context = TransactionContext(broker.clock, broker.timer, self.markers)
        self._schedule_expiry()
        return TransactionCoordinator(context, lambda: broker.internal_topics.partition_count(TRANSACTIONS))

    # -- start and stop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._broker.internal_topics.exists(TRANSACTIONS):
            self._take_over()

    async def stop(self) -> None:
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])
        if self._expiry is not None:
            self._expiry.cancel()
            self.coordinator.close()

    async def settle(self) -> None:
        """Waits until all that is being loaded is."""
        if self._loader is not None:
            await asyncio.wait([self._loader])

    async def ensure(self) -> None:
        """Somebody looks for a coordinator: the topic is made if it is not there."""
        await self._broker.internal_topics.ensure(TRANSACTIONS)
        self._take_over()

    def unload(self, index: int) -> None:
        """The partition's log is gone."""
        self.coordinator.unload(index)

    def _take_over(self) -> None:
        """Starts to load the partitions that we lead and do not have yet."""
        broker, coordinator = self._broker, self.coordinator
        for index in range(broker.internal_topics.partition_count(TRANSACTIONS)):
            partition = broker.partitions.get(TRANSACTIONS, index)
            if partition is None or coordinator.has(index):
                continue
            loading = coordinator.load(broker.internal_topics.journal(TRANSACTIONS, index))
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

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.config.int("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expiry = self._broker.timer.schedule(interval_ms, self._expire)

    def _expire(self) -> None:
        try:
            self.coordinator.expire(self._broker.config.int("transactional.id.expiration.ms"))
        except (KafkaError, OSError) as error:
            logger.warning("transactional ids cannot be expired now: %s", error)
        self._schedule_expiry()

    # -- what handlers use ------------------------------------------------------------------------------------------

    async def with_producer_id(self, ask: Callable[[int | None], Identity]) -> Identity:
        """What ``ask`` says; with a new producer id, if it cannot say it without."""
        from headrace.transactions.coordinator import ProducerIdNeeded

        try:
            return ask(None)
        except ProducerIdNeeded:
            return ask(await self._broker.producer_ids.next())

    def ensure_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool = True
    ) -> None:
        """Before a write of a transaction: its partition is added, or (not ``adds``) must have been.

        :raises TransactionAbortable: if it was not.
        :raises KafkaError: if the producer may not write.
        """
        from headrace.transactions.coordinator import Identity
        from headrace.transactions.metadata import VERSION_2

        producer, partition = Identity(producer_id, producer_epoch), (topic, index)
        if adds:
            self.coordinator.add_partitions(transactional_id, producer, [partition], client_version=VERSION_2)
        elif self.coordinator.missing_partitions(transactional_id, producer, [partition]):
            raise TransactionAbortable(f"{topic}-{index} was not added to the transaction of {transactional_id!r}")

    def _marker_written(self, topic: str, index: int, marker: Marker) -> None:
        broker = self._broker
        if topic == GROUPS:
            broker.groups.coordinator.transaction_ended(index, marker.producer_id, marker.is_commit)
        broker.delayed_fetch.check_and_complete((topic, index))  # readers of what is committed may wait for it
