"""Runs the transaction coordinator on a broker. Also writes markers, and expires transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Any

from headrace.broker.coordinators.coordinator_service import CoordinatorContext, CoordinatorService
from headrace.broker.coordinators.internal_topics import TRANSACTIONS
from headrace.protocol.errors import KafkaError
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.coordinators.participants import TransactionParticipants
    from headrace.broker.coordinators.placement import CoordinatorPlacement
    from headrace.broker.coordinators.producer_ids import ProducerIds
    from headrace.broker.coordinators.transactional_produce import RefusedPartitions, TransactionalProduce
    from headrace.transactions.coordinator import ProducerIdentity, TransactionCoordinator
    from headrace.transactions.markers import LocalMarkerWriter, Marker

logger = getLogger(__name__)


class TransactionService(CoordinatorService["TransactionCoordinator"]):
    topic = TRANSACTIONS

    def __init__(
        self,
        context: CoordinatorContext,
        placement: CoordinatorPlacement,
        *,
        producer_ids: ProducerIds,
        make_participants: Callable[[TransactionService], TransactionParticipants],
        on_marker: Callable[[str, int, Marker], object],
    ) -> None:
        """
        :param on_marker: is called with the topic, the partition and the marker after a marker was written here.
        """
        super().__init__(context, placement)
        self._producer_ids = producer_ids
        self._make_participants = make_participants
        self._on_marker = on_marker
        self._expiry: TimerTask | None = None

    @cached_property
    def markers(self) -> LocalMarkerWriter:
        """Writes markers to the partitions that this broker leads."""
        from headrace.transactions.markers import LocalMarkerWriter

        return LocalMarkerWriter(self._partitions, self._runtime.clock, self._marker_written)

    @cached_property
    def participants(self) -> TransactionParticipants:
        """The partitions of transactions, on whichever broker they are."""
        return self._make_participants(self)

    @cached_property
    def coordinator(self) -> TransactionCoordinator:
        from headrace.transactions.coordinator import TransactionCoordinator
        from headrace.transactions.shard import TransactionContext

        context = TransactionContext(self._runtime.clock, self._runtime.timer, self.participants.marker_sender)
        self._schedule_expiry()
        return TransactionCoordinator(context, self.partition_count)

    async def stop(self) -> None:
        await super().stop()
        if self._expiry is not None:
            self._expiry.cancel()
            self.coordinator.unload_all()
        if "participants" in self.__dict__:
            await self.participants.close()

    def _schedule_expiry(self) -> None:
        interval_ms = self._config.int("transaction.remove.expired.transaction.cleanup.interval.ms")
        self._expiry = self._runtime.timer.schedule(interval_ms, self._expire)

    def _expire(self) -> None:
        try:
            self.coordinator.expire(self._config.int("transactional.id.expiration.ms"))
        except (KafkaError, OSError) as error:
            logger.warning("transactional ids cannot be expired now: %s", error)
        self._schedule_expiry()

    # -- what handlers use ------------------------------------------------------------------------------------------

    async def with_producer_id(self, ask: Callable[[int | None], ProducerIdentity]) -> ProducerIdentity:
        """The result of ``ask``. Calls ``ask`` with a new producer id if it needs one."""
        from headrace.transactions.coordinator import ProducerIdNeeded

        try:
            return ask(None)
        except ProducerIdNeeded:
            return ask(await self._producer_ids.next())

    async def wait_until_ended(self, transactional_id: str) -> None:
        """Waits for a short time until the transaction has ended in all its partitions."""
        await self.participants.wait_until_ended(transactional_id)

    async def ensure_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, index: int, *, adds: bool = True
    ) -> None:
        """Adds a partition to a transaction before a write, or (not ``adds``) checks that it was added. The result
        holds until the caller awaits something else.

        :raises TransactionAbortable: if the partition was not added.
        :raises CoordinatorLoadInProgress: if the coordinator is on another broker and does not answer.
        :raises KafkaError: if the producer may not write.
        """
        from headrace.transactions.coordinator import ProducerIdentity

        producer, partition = ProducerIdentity(producer_id, producer_epoch), (topic, index)
        refusals = await self.participants.refusals(transactional_id, producer, [partition], adds=adds)
        if partition in refusals:
            raise refusals[partition]

    async def refused_partitions(self, body: Any, version: int, may_write: Callable[[str], bool]) -> RefusedPartitions:
        """The partitions of a transactional Produce request that may not be written, and why."""
        return await self._transactional_produce.refused_partitions(body, version, may_write)

    @cached_property
    def _transactional_produce(self) -> TransactionalProduce:
        from headrace.broker.coordinators.transactional_produce import TransactionalProduce

        return TransactionalProduce(self._config, self._metadata, self._partitions, self.participants)

    def _marker_written(self, topic: str, index: int, marker: Marker) -> None:
        self.participants.marker_written(topic, index, marker.producer_id)
        self._on_marker(topic, index, marker)
