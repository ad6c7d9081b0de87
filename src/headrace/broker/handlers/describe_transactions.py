"""DescribeTransactions (key 65): the state of transactional ids at their coordinator.

Speaks v0 (KIP-664).
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import allowed_topics, check
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.transaction_service import TransactionService
    from headrace.broker.network.connection import Connection

_UNKNOWN = {
    "transaction_state": "",
    "transaction_timeout": 0,
    "transaction_start_time": 0,
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": (),
}


async def handle(request: Request, authorizer: Authorizer, transactions: TransactionService) -> Reply:
    ids = request.body.transactional_ids
    answer = partial(_answer, authorizer, request.connection, transactions)
    return {"transaction_states": await request.answers(ids, answer, "transaction_states", from_state=True)}


def _answer(
    authorizer: Authorizer, connection: Connection, transactions: TransactionService, transactional_id: str
) -> dict[str, object]:
    with code_for_errors(transactional_id=transactional_id, **_UNKNOWN) as answer:
        check(authorizer, connection, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        may_describe = allowed_topics(authorizer, connection, AclOperation.DESCRIBE)
        found = transactions.coordinator.describe(transactional_id)
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(found.partitions):
            if may_describe(topic):
                topics[topic].append(index)
        answer.update(
            transaction_state=found.state.label,
            transaction_timeout=found.timeout_ms,
            transaction_start_time=found.started_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
        )
    return answer
