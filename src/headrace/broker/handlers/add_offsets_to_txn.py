"""AddOffsetsToTxn (key 25): announces that a transaction will commit offsets of a group.

Speaks v0 to v4. The group's partition of ``__consumer_offsets`` becomes one of the transaction's partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.coordinators.internal_topics import GROUPS
from headrace.broker.handlers._transactional import FENCED_SINCE, code_of
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.internal_records import partition_for
from headrace.security.acls import AclOperation, ResourceType
from headrace.transactions.coordinator import ProducerIdentity

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.coordinators.transaction_service import TransactionService


async def handle(
    request: Request, authorizer: Authorizer, groups: GroupService, transactions: TransactionService
) -> Reply:
    body = request.body
    try:
        check(authorizer, request.connection, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        check(authorizer, request.connection, AclOperation.READ, ResourceType.GROUP, body.group_id)
        await groups.ensure()
        index = partition_for(body.group_id, groups.partition_count())
        producer = ProducerIdentity(body.producer_id, body.producer_epoch)
        transactions.coordinator.add_partitions(body.transactional_id, producer, [(GROUPS, index)])
        await transactions.replicated(body.transactional_id)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        return {"error_code": code_of(error, knows_fenced=request.version >= FENCED_SINCE)}
    return {"error_code": ErrorCode.none}
