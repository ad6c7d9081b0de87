"""Transaction coordination, wired into a broker; beside what all coordinators need, markers and expiry."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.coordinators.coordinator_service import CoordinatorService
from headrace.broker.coordinators.internal_topics import GROUPS, TRANSACTIONS
from headrace.protocol.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    TransactionAbortable,
)
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.broker.cluster.markers import ClusterMarkers
    from headrace.broker.cluster.txn_partitions import TxnPartitions
    from headrace.transactions.coordinator import Identity, TransactionCoordinator
    from headrace.transactions.markers import LocalMarkers, Marker, MarkerSender

logger = getLogger(__name__)

#: How long the answer to an end waits for the markers to be where they belong.
_SETTLING_S = 1.0


class TransactionService(CoordinatorService["TransactionCoordinator"]):
    topic = TRANSACTIONS

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._expiry: TimerTask | None = None

    @cached_property
    def markers(self) -> LocalMarkers:
        """Writes to the partitions that we lead."""
        from headrace.transactions.markers import LocalMarkers

        return LocalMarkers(self._broker.partitions, self._broker.clock, self._marker_written)

    @cached_property
    def cluster_markers(self) -> ClusterMarkers:
        """In a cluster: sends to whoever leads."""
        from headrace.broker.cluster.markers import ClusterMarkers

        return ClusterMarkers(self._broker, self.markers)

    @cached_property
    def partitions(self) -> TxnPartitions:
        """In a cluster: which partitions transactions have, whoever coordinates them."""
        from headrace.broker.cluster.txn_partitions import TxnPartitions

        return TxnPartitions(self._broker)

    @cached_property
    def coordinator(self) -> TransactionCoordinator:
        from headrace.transactions.coordinator import TransactionCoordinator
        from headrace.transactions.shard import TransactionContext

        broker = self._broker
        sender: MarkerSender = self.markers if broker.cluster is None else self.cluster_markers
        context = TransactionContext(broker.clock, broker.timer, sender)
        self._schedule_expiry()
        return TransactionCoordinator(context, self.partition_count)

    async def stop(self) -> None:
        await super().stop()
        if self._expiry is not None:
            self._expiry.cancel()
            self.coordinator.unload_all()
        if self._broker.cluster is not None:
            await self.cluster_markers.close()
            await self.partitions.close()

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

    async def settled(self, transactional_id: str) -> None:
        """In a cluster: waits, a while, until the id's transaction has ended wherever it wrote. A client that is
        answered before may come with the next one too early, and is then told to wait for much longer than this takes.
        """
        shard = self.coordinator.active(self.coordinator.index_of(transactional_id))
        if shard is None:
            return
        # By hand, as the request may not have waited for anything yet: then it is no task, and from Python 3.12 on
        # asyncio's timeouts are for tasks only.
        done = self._broker.loop.create_future()

        def end() -> None:
            if not done.done():
                done.set_result(None)

        shard.when_settled(transactional_id, end)
        timeout = self._broker.loop.call_later(_SETTLING_S, end)
        await done
        timeout.cancel()

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

    async def ensure_partition_in_cluster(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool = True
    ) -> None:
        """The same, where another broker may coordinate the transaction. It holds for as long as nothing is awaited.

        :raises CoordinatorLoadInProgress: if that is not to be reached: to be tried again, here.
        """
        from headrace.transactions.coordinator import Identity

        producer, partition = Identity(producer_id, producer_epoch), (topic, index)
        refusals = await self.partitions.refusals(transactional_id, producer, [partition], adds=adds)
        error = refusals.get(partition)
        if isinstance(error, CoordinatorNotAvailable | NotCoordinator):
            raise CoordinatorLoadInProgress(f"the transaction's coordinator is not ready: {error}")
        if error is not None:
            raise error

    def _marker_written(self, topic: str, index: int, marker: Marker) -> None:
        broker = self._broker
        if broker.cluster is not None:
            self.partitions.marker_written(topic, index, marker.producer_id)
        if topic == GROUPS:
            broker.groups.coordinator.transaction_ended(index, marker.producer_id, marker.is_commit)
        broker.delayed_fetch.check_and_complete((topic, index))  # readers of what is committed may wait for it
