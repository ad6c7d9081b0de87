"""A transaction that one client writes and another one ends.

Whoever knows transactional id, producer id and epoch of an open transaction may end it by EndTxn: the coordinator asks
for no more. So a process that has written its share can hand these over and go, and one that knows of all shares ends
them. Until then, and for ``transaction.timeout.ms`` at most, the coordinator keeps the transaction open; the writer's
own successor (the same transactional id) aborts it when it begins.

Ending it once more the same way is no error, as long as that successor has not begun.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import BrokerError, ErrorCode, HeadraceError, error_for
from headrace.client.producer.async_producer import AsyncProducer
from headrace.client.producer.sync_producer import Producer
from headrace.protocol.api import Api

#: With KIP-890 and before; the one that the transaction was written with.
_END_VERSION = {True: 5, False: 4}
_LOST = frozenset(
    {
        ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state, ErrorCode.transactional_id_not_found,
    }
)  # fmt: skip


class PreparedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: Whether it was written by the rules of KIP-890 (``transaction.version`` 2).
    is_version_2: bool


class TransactionLost(HeadraceError):
    """It cannot be ended so any more: it timed out, was ended otherwise, or its producer has begun anew."""


def prepare(producer: Producer) -> PreparedTransaction:
    """Waits for all that was sent in the open transaction. The producer may be closed then.

    :raises HeadraceError: if a part of it could not be delivered.
    """
    producer.flush()
    inner: AsyncProducer = producer._inner
    transactions = inner._transactional()
    if transactions.error is not None:
        raise transactions.error
    producer_id, epoch = inner.core.accumulator.producer
    return PreparedTransaction(transactions.transactional_id, producer_id, epoch, transactions.is_version_2)


async def end_prepared(cluster: Cluster, prepared: PreparedTransaction, *, is_commit: bool) -> None:
    """
    :raises TransactionLost: if it is not open any more, and did not end this way.
    """
    verb = "committing" if is_commit else "aborting"
    what = f"{verb} the prepared transaction of {prepared.transactional_id!r}"
    try:
        answer = await cluster.ask_coordinator(
            Api.END_TXN, "transaction", prepared.transactional_id, version=_END_VERSION[prepared.is_version_2],
            transactional_id=prepared.transactional_id, producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch, committed=is_commit,
        )  # fmt: skip
        if answer.error_code is not ErrorCode.none:
            raise error_for(answer.error_code, what)
    except BrokerError as error:
        if error.code in _LOST:
            raise TransactionLost(f"{what}: {error}") from error
        raise
