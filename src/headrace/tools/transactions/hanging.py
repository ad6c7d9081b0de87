"""Finds hanging transactions: open transactions that no coordinator will ever end (KIP-664). No I/O.

A transaction hangs if a partition has an open transaction of a producer, but the coordinator does not know it: there is
no such transactional id, or its transaction does not include that partition. Consumers with ``read_committed`` cannot
read past a hanging transaction until somebody aborts it. Young transactions are ignored: a coordinator adds a partition
to a transaction before the partition sees it, and removes the partition after the partition has ended it.
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
    """Open transactions without a write for longer than a transaction may last."""
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
    :param known: the descriptions that coordinators sent.
    """
    return [each for each in candidates if not _is_known(each, known.get(ids.get(each.producer.producer_id, "")))]


def _is_known(candidate: OpenTransaction, described: TransactionDescription | None) -> bool:
    return described is not None and candidate.partition in described.partitions
