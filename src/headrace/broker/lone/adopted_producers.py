"""Finds the producer ids that are in use in data folders without a znode tree.

The tree holds the last block of producer ids that was given out. Without it a broker would give out ids a second time,
and two producers with the same id fence each other. So new ids begin above the largest id that any partition or any
transactional id has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.coordinators.internal_topics import TRANSACTIONS
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalTopic, decode
from headrace.replication.journal import Journal

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partition import Partition
    from headrace.replication.partitions import Partitions
    from headrace.runtime.clock import Clock

_NONE = -1


def largest_producer_id(partitions: Partitions, clock: Clock, logs: Iterable[PartitionLog]) -> int:
    """The largest id that is in use in these logs; -1 if there is none."""
    largest = _NONE
    for log in logs:
        largest = max(largest, *log.producers.producers, _NONE)
        if log.topic == TRANSACTIONS:
            largest = max(largest, _largest_of_transactions(partitions.leader(log.topic, log.partition), clock))
    return largest


def _largest_of_transactions(partition: Partition, clock: Clock) -> int:
    largest = _NONE
    for _, records in Journal(partition, clock).batches():
        for record in records:
            try:
                read = decode(InternalTopic.TRANSACTION_STATE, record.key or b"", record.value)
            except CorruptMessage:
                continue  # the coordinator logs it when it loads the partition
            if read is not None and read.value is not None:
                largest = max(largest, read.value.producer_id, read.value.next_producer_id)
    return largest
