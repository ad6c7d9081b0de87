"""Which open transactions of partitions nobody will ever end (KIP-664). No I/O.

A partition knows of a producer with a transaction; its coordinator does not: there is no such transactional id, or its
transaction does not have that partition. Such a transaction holds up readers of committed records until it is aborted
by hand. Young ones are left out: a coordinator is told of a partition before the partition is, and forgets after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.admin.types import ProducerState, TransactionDescription
from headrace.client.types import TopicPartition


class OpenTransaction(NamedTuple):
    partition: TopicPartition
    producer: ProducerState


def old_transactions(
    producers: Mapping[TopicPartition, Iterable[ProducerState]], now_ms: int, max_timeout_ms: int
) -> list[OpenTransaction]:
    """Those that are open, with nothing written for longer than a transaction may last."""
    return [
        OpenTransaction(partition, producer)
        for partition, states in sorted(producers.items())
        for producer in states
        if producer.current_txn_start_offset >= 0 and now_ms - producer.last_timestamp_ms > max_timeout_ms
    ]


def hanging(
    candidates: Iterable[OpenTransaction],
    ids: Mapping[int, str],
    known: Mapping[str, TransactionDescription],
) -> list[OpenTransaction]:
    """
    :param ids: transactional ids by producer id.
    :param known: what coordinators say of them.
    """
    return [each for each in candidates if not _is_known(each, known.get(ids.get(each.producer.producer_id, "")))]


def _is_known(candidate: OpenTransaction, described: TransactionDescription | None) -> bool:
    return described is not None and candidate.partition in described.partitions
