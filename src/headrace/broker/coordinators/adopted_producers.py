"""The producer ids that are in use in data folders which came without a znode tree.

Their block is in the tree that is not there, and an id that is given out twice makes two producers fence each other.
So new ids begin above the largest that a partition remembers, or that a transactional id has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.coordinators.internal_topics import TRANSACTIONS
from headrace.protocol.errors import CorruptMessage
from headrace.protocol.internal_records import InternalTopic, decode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.log.partition_log import PartitionLog

_NONE = -1


def largest_producer_id(broker: Broker, logs: Iterable[PartitionLog]) -> int:
    """-1 if there is none."""
    largest = _NONE
    for log in logs:
        largest = max(largest, *log.producers.producers, _NONE)
        if log.topic == TRANSACTIONS:
            largest = max(largest, _largest_of_transactions(broker, log.partition))
    return largest


def _largest_of_transactions(broker: Broker, index: int) -> int:
    largest = _NONE
    for _, records in broker.internal_topics.journal(TRANSACTIONS, index).batches():
        for record in records:
            try:
                read = decode(InternalTopic.TRANSACTION_STATE, record.key or b"", record.value)
            except CorruptMessage:
                continue  # the coordinator says so when it loads
            if read is not None and read.value is not None:
                largest = max(largest, read.value.producer_id, read.value.next_producer_id)
    return largest
