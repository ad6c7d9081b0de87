"""EndTxn (key 26): commits or aborts a transaction.

Speaks v0 to v5. The answer comes when the decision is stored. By then the markers are normally written, too, unless a
disk failed or, in a cluster, a leader cannot be reached. From v5 on (KIP-890) each end raises the producer's epoch, and
the answer has the id and epoch that the producer uses next. In v5 an abort is also accepted if no transaction was
begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.handlers._transactional import FENCED_SINCE, code_of
from headrace.broker.network.request import Reply, Request
from headrace.security.acls import AclOperation, ResourceType
from headrace.transactions.coordinator import ProducerIdentity
from headrace.transactions.metadata import VERSION_2

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.transaction_service import TransactionService

_VERSION_2_SINCE = 5


async def handle(request: Request, authorizer: Authorizer, transactions: TransactionService) -> Reply:
    body = request.body
    producer = ProducerIdentity(body.producer_id, body.producer_epoch)
    end = transactions.coordinator.end
    client_version = VERSION_2 if request.version >= _VERSION_2_SINCE else 0
    try:
        check(authorizer, request.connection, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        following = await transactions.with_producer_id(
            lambda fresh: end(
                body.transactional_id,
                producer,
                is_commit=body.committed,
                client_version=client_version,
                fresh_producer_id=fresh,
            )
        )
        await transactions.replicated(body.transactional_id)
        await transactions.wait_until_ended(body.transactional_id)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        code = code_of(error, knows_fenced=request.version >= FENCED_SINCE)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": following.producer_id, "producer_epoch": following.producer_epoch}
