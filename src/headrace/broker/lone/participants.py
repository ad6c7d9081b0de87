"""The participants of transactions on a lone broker: it coordinates all transactions and leads all partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.broker.coordinators.participants import Refusals, TransactionParticipants, not_added
from headrace.protocol.errors import KafkaError
from headrace.transactions.metadata import VERSION_2, TopicPartition

if TYPE_CHECKING:
    from headrace.transactions.coordinator import ProducerIdentity, TransactionCoordinator
    from headrace.transactions.markers import LocalMarkerWriter


class LoneParticipants(TransactionParticipants):
    """Asks the coordinator of this broker. No method waits, so nothing can come between an answer and the append."""

    def __init__(self, coordinator: Callable[[], TransactionCoordinator], markers: LocalMarkerWriter) -> None:
        self._coordinator = coordinator
        self.marker_sender = markers

    async def refusals(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], *, adds: bool
    ) -> Refusals:
        coordinator, asked = self._coordinator(), list(partitions)
        try:
            if adds:
                coordinator.add_partitions(transactional_id, producer, asked, client_version=VERSION_2)
                return {}
            missing = coordinator.missing_partitions(transactional_id, producer, asked)
        except KafkaError as error:
            return dict.fromkeys(asked, error)
        return {partition: not_added(partition, transactional_id) for partition in missing}

    def marker_written(self, topic: str, index: int, producer_id: int) -> None:
        pass

    async def wait_until_ended(self, transactional_id: str) -> None:
        """The coordinator writes all markers before it answers; only a disk that fails delays some, for longer than a
        client should wait."""

    async def close(self) -> None:
        pass
