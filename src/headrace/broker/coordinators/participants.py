"""The interface to the participants of transactions: the partitions that transactions write to.

``LoneParticipants`` (``lone/participants.py``): this broker coordinates all transactions and leads all partitions.
``ClusterParticipants`` (``cluster/participants.py``): other brokers may coordinate a transaction or lead its
partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.protocol.errors import KafkaError, TransactionAbortable
from headrace.transactions.metadata import TopicPartition

if TYPE_CHECKING:
    from headrace.transactions.coordinator import ProducerIdentity
    from headrace.transactions.markers import MarkerSender

#: The partitions that a transaction may not write to, and why. Partitions that it may write to are not in it.
Refusals = dict[TopicPartition, KafkaError]


class TransactionParticipants(ABC):
    #: Sends the markers that end transactions.
    marker_sender: MarkerSender

    @abstractmethod
    async def refusals(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], *, adds: bool
    ) -> Refusals:
        """The partitions that do not belong to the producer's transaction, and why (KIP-890). With ``adds`` they are
        added to the transaction first.

        The answer holds until the caller awaits something else.
        """

    @abstractmethod
    def marker_written(self, topic: str, index: int, producer_id: int) -> None:
        """A marker has ended a producer's transaction in a partition of this broker."""

    @abstractmethod
    async def wait_until_ended(self, transactional_id: str) -> None:
        """Waits for a short time until the transaction of ``transactional_id`` has ended in all its partitions. A
        client that is answered earlier may begin its next transaction too early, and then has to wait much longer."""

    @abstractmethod
    async def close(self) -> None:
        """Sends nothing any more."""


def not_added(partition: TopicPartition, transactional_id: str) -> KafkaError:
    topic, index = partition
    return TransactionAbortable(f"{topic}-{index} was not added to the transaction of {transactional_id!r}")
