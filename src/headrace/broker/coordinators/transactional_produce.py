"""Whether the transactional batches of a Produce request may be written: their coordinator is asked (KIP-890).

A transaction's first write to a partition must be part of what its coordinator knows, else no marker would ever end
it, and readers of what is committed would wait behind it for good. Later writes of the same transaction need not ask:
the partition itself knows that it is open.

===========  ======================================================================================
Produce      the first write to a partition
===========  ======================================================================================
v12 on       adds the partition to the transaction
v11          must have been added: TRANSACTION_ABORTABLE if not
v3 to v10    the same: INVALID_TXN_STATE; not looked at with ``transaction.partition.verification.enable=false``
===========  ======================================================================================

Alone all of this and the append happen in one go on one loop: nothing can come between. In a cluster the coordinator
may be another broker, and what it adds must be committed first (``cluster/txn_partitions.py``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
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
from headrace.transactions.coordinator import Identity
from headrace.transactions.metadata import VERSION_2, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_PRODUCER_AT, _PRODUCER = 43, Struct(">qh")
_ABORTABLE_SINCE, _ADDS_SINCE, _BY_TOPIC_ID = 11, 12, 13

_NOT_READY = (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    StorageError,
)

Refused = Mapping[TopicPartition, KafkaError]


def is_transactional(records: Buffer) -> bool:
    return records[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL != 0


def refused_partitions(broker: Broker, body: Any, version: int) -> Refused:
    """The partitions of a request that has a transactional id to which it may not write, and why."""
    refused: dict[TopicPartition, KafkaError] = {}
    for producer, partitions in _first_writes(broker, body, version).items():
        refused.update(_ask(broker, body.transactional_id, producer, partitions, version))
    return refused


async def refused_partitions_in_cluster(broker: Broker, body: Any, version: int) -> Refused:
    """The same in a cluster. It holds for as long as nothing is awaited."""
    adds = version >= _ADDS_SINCE
    first_writes = _first_writes(broker, body, version)
    if not first_writes or not (adds or broker.config.bool("transaction.partition.verification.enable")):
        return {}
    refused: dict[TopicPartition, KafkaError] = {}
    for producer, partitions in first_writes.items():
        refusals = await broker.transactions.partitions.refusals(body.transactional_id, producer, partitions, adds=adds)
        refused.update((partition, _as_produce_says_it(error, version)) for partition, error in refusals.items())
    return refused


def _first_writes(broker: Broker, body: Any, version: int) -> Mapping[Identity, list[TopicPartition]]:
    """The partitions that do not know yet of the transaction that is written to them, by producer."""
    found: dict[Identity, list[TopicPartition]] = defaultdict(list)
    for producer, partition in _each_first_write(broker, body, version):
        found[producer].append(partition)
    return found


def _each_first_write(broker: Broker, body: Any, version: int) -> Iterator[tuple[Identity, TopicPartition]]:
    for topic in body.topic_data:
        name = topic.name if version < _BY_TOPIC_ID else None
        if name is None:
            known = broker.metadata.get_by_id(topic.topic_id) if topic.topic_id else None
            if known is None:
                continue
            name = known.name
        for data in topic.partition_data:
            records = data.records
            if records is None or len(records) < HEADER_BYTES or not is_transactional(records):
                continue
            partition = broker.partitions.get(name, data.index)
            producer = Identity(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
            if partition is None or not partition.is_leader:
                continue
            if not partition.log.producers.has_open_transaction(*producer):
                yield producer, (name, data.index)


def _ask(
    broker: Broker, transactional_id: str, producer: Identity, partitions: list[TopicPartition], version: int
) -> Refused:
    coordinator = broker.transactions.coordinator
    try:
        if version >= _ADDS_SINCE:
            coordinator.add_partitions(transactional_id, producer, partitions, client_version=VERSION_2)
            return {}
        if not broker.config.bool("transaction.partition.verification.enable"):
            return {}
        missing = coordinator.missing_partitions(transactional_id, producer, partitions)
    except KafkaError as error:
        return dict.fromkeys(partitions, _as_produce_says_it(error, version))
    kind = TransactionAbortable if version >= _ABORTABLE_SINCE else InvalidTxnState
    return {
        (topic, index): kind(f"{topic}-{index} was not added to the transaction of {transactional_id!r}")
        for topic, index in missing
    }


def _as_produce_says_it(error: KafkaError, version: int) -> KafkaError:
    """Producers know what to do about some errors only under another name."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, ConcurrentTransactions) and version >= _ADDS_SINCE:
        return error
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_SINCE:
        return InvalidTxnState(str(error))
    if isinstance(error, _NOT_READY):
        return NotEnoughReplicas(f"its transaction's coordinator is not ready: {error}")  # which is tried again
    return error
