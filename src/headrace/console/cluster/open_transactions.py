"""Finds transactions that are open for too long, and those that hang (KIP-664).

A transaction hangs if a partition has an open transaction of a producer that no coordinator knows: nobody will end it,
and consumers with ``read_committed`` cannot read past it. Young ones are left out, because a coordinator and a
partition learn of a transaction one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.admin.types import ProducerState, TransactionDescription
from headrace.client.types import TopicPartition
from headrace.console.cluster.reader import ClusterReader

MOST_SEARCHED = 2_000


@dataclass(frozen=True)
class Hanging:
    """An open transaction in a partition that no coordinator knows."""

    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_write_ms: int


def unknown_transactions(
    producers: Mapping[TopicPartition, Iterable[ProducerState]],
    known: Iterable[TransactionDescription],
    before_ms: int,
) -> list[Hanging]:
    """
    :param known: the descriptions that coordinators sent.
    :param before_ms: transactions with a later write are left out.
    """
    owned = {(each.producer_id, at) for each in known for at in each.partitions}
    return [
        Hanging(
            at.topic,
            at.partition,
            state.current_txn_start_offset,
            state.producer_id,
            state.producer_epoch,
            # A partition reports -1 for a coordinator that has written no marker yet; markers begin with 0.
            max(0, state.coordinator_epoch),
            state.last_timestamp_ms,
        )
        for at, states in sorted(producers.items())
        for state in states
        if state.current_txn_start_offset >= 0
        and state.last_timestamp_ms < before_ms
        and (state.producer_id, at) not in owned
    ]


async def find_hanging(cluster: ClusterReader, partitions: Iterable[TopicPartition], before_ms: int) -> list[Hanging]:
    """Searches partitions for transactions that hang."""
    found = (await cluster.admin.describe_producers(partitions)).ok
    suspects = {each.producer_id for each in unknown_transactions(found, (), before_ms)}
    if not suspects:
        return []
    listed = await cluster.admin.list_transactions(producer_ids=suspects)
    ids = [each.transactional_id for each in listed]
    known = (await cluster.admin.describe_transactions(ids)).ok if ids else {}
    return unknown_transactions(found, known.values(), before_ms)
