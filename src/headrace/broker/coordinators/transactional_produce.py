"""Checks with the transaction coordinator whether the batches of a transaction may be written (KIP-890).

The coordinator must know each partition that a transaction writes to. Otherwise no marker would ever end the
transaction there, and consumers with ``read_committed`` would wait behind it for ever. Only the first write to a
partition is checked: for later writes the partition itself knows that the transaction is open.

===========  ======================================================================================
Produce      the first write to a partition
===========  ======================================================================================
v12 on       adds the partition to the transaction
v11          the partition must have been added: TRANSACTION_ABORTABLE if not
v3 to v10    the same: INVALID_TXN_STATE; not checked with ``transaction.partition.verification.enable=false``
===========  ======================================================================================

In a cluster the coordinator may be another broker, and what it adds must be committed first
(``cluster/participants.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.protocol.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    StorageError,
    TransactionAbortable,
)
from headrace.protocol.records import ATTRIBUTES_LOW_BYTE_AT, HEADER_BYTES, TRANSACTIONAL, Buffer
from headrace.transactions.coordinator import ProducerIdentity
from headrace.transactions.metadata import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.participants import TransactionParticipants
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.replication.partitions import Partitions

_PRODUCER_AT, _PRODUCER = 43, Struct(">qh")
_ABORTABLE_SINCE, _ADDS_SINCE, _BY_TOPIC_ID = 11, 12, 13

_NOT_READY = (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    StorageError,
)

#: The partitions that may not be written, and why.
RefusedPartitions = Mapping[TopicPartition, KafkaError]


class TransactionalProduce:
    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        partitions: Partitions,
        participants: TransactionParticipants,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._partitions = partitions
        self._participants = participants

    async def refused_partitions(self, body: Any, version: int, may_write: Callable[[str], bool]) -> RefusedPartitions:
        """The partitions that a request with a transactional id may not write to, and why. The answer holds until the
        caller awaits something else.

        :param may_write: decides by the name of a topic whether the client may write to it at all. Partitions of other
            topics are never added to a transaction.
        """
        adds = version >= _ADDS_SINCE
        first_writes = self._first_writes(body, version, may_write)
        if not first_writes or not (adds or self._config.bool("transaction.partition.verification.enable")):
            return {}
        refused: dict[TopicPartition, KafkaError] = {}
        for producer, partitions in first_writes.items():
            refusals = await self._participants.refusals(body.transactional_id, producer, partitions, adds=adds)
            refused.update((partition, _for_producer(error, version)) for partition, error in refusals.items())
        return refused

    def _first_writes(
        self, body: Any, version: int, may_write: Callable[[str], bool]
    ) -> Mapping[ProducerIdentity, list[TopicPartition]]:
        """The partitions for which this is the transaction's first write, by producer."""
        found: dict[ProducerIdentity, list[TopicPartition]] = defaultdict(list)
        for producer, partition in self._each_first_write(body, version, may_write):
            found[producer].append(partition)
        return found

    def _each_first_write(
        self, body: Any, version: int, may_write: Callable[[str], bool]
    ) -> Iterator[tuple[ProducerIdentity, TopicPartition]]:
        for topic in body.topic_data:
            name = topic.name if version < _BY_TOPIC_ID else None
            if name is None:
                known = self._metadata.get_by_id(topic.topic_id) if topic.topic_id else None
                if known is None:
                    continue
                name = known.name
            if not may_write(name):
                continue
            for data in topic.partition_data:
                records = data.records
                if records is None or len(records) < HEADER_BYTES or not _is_transactional(records):
                    continue
                partition = self._partitions.get(name, data.index)
                producer = ProducerIdentity(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
                if partition is None or not partition.is_leader:
                    continue
                if not partition.log.producers.has_open_transaction(*producer):
                    yield producer, (name, data.index)


def _is_transactional(records: Buffer) -> bool:
    return records[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL != 0


def _for_producer(error: KafkaError, version: int) -> KafkaError:
    """The error that a producer of this version knows how to handle."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, ConcurrentTransactions) and version >= _ADDS_SINCE:
        return error
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_SINCE:
        return InvalidTxnState(str(error))
    if isinstance(error, _NOT_READY):
        return NotEnoughReplicas(f"the coordinator of the transaction is not ready: {error}")  # producers try again
    return error
