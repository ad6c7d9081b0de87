"""A transaction that one client writes and another client ends.

A client that has the transactional id, the producer id and the epoch of an open transaction can end the transaction by
EndTxn. The coordinator asks for no more. So a process writes its share of the records, passes the three values on, and
exits. Another process that has the values of all shares ends the transactions.

Until then the coordinator keeps the transaction open, for at most ``transaction.timeout.ms``. A new producer with the
same transactional id aborts the transaction when it calls ``init_transactions``.

Ending the transaction a second time in the same way is not an error, as long as no such new producer has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import BrokerError, ErrorCode, HeadraceError, error_for
from headrace.protocol.api import Api

if TYPE_CHECKING:
    from headrace.client.producer.sync_producer import Producer

#: The version of EndTxn for transactions of KIP-890 (True) and of before (False).
_END_VERSION = {True: 5, False: 4}
_LOST = frozenset(
    {
        ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state, ErrorCode.transactional_id_not_found,
    }
)  # fmt: skip


class PreparedTransaction(NamedTuple):
    """The values that another client needs to end a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: Whether the transaction was written by the rules of KIP-890 (``transaction.version`` 2).
    is_version_2: bool


class TransactionLost(HeadraceError):
    """The prepared transaction is no longer open, so it cannot be ended: it timed out, it was ended in the other way,
    or a new producer of the same transactional id has started."""


def prepare(producer: Producer) -> PreparedTransaction:
    """Waits until all records of the open transaction are acknowledged. The producer may be closed then.

    :raises HeadraceError: if a record could not be delivered.
    """
    producer.flush()
    return producer.transactions.prepared()


async def end_prepared(cluster: Cluster, prepared: PreparedTransaction, *, is_commit: bool) -> None:
    """Commits or aborts a prepared transaction.

    :raises TransactionLost: if the transaction is no longer open, and did not end in this way.
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
