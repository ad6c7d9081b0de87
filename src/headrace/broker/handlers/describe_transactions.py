"""DescribeTransactions (key 65): what a coordinator knows of transactional ids.

Speaks v0 (KIP-664).
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.network.dispatch import Reply
from headrace.broker.network.request import Request
from headrace.protocol.errors import code_for_errors

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_UNKNOWN = {
    "transaction_state": "",
    "transaction_timeout": 0,
    "transaction_start_time": 0,
    "producer_id": 0,
    "producer_epoch": 0,
    "topics": (),
}


async def handle(request: Request, broker: Broker) -> Reply:
    ids = request.body.transactional_ids
    return {"transaction_states": await request.answers(ids, partial(_answer, broker), "transaction_states")}


def _answer(broker: Broker, transactional_id: str) -> dict[str, object]:
    with code_for_errors(transactional_id=transactional_id, **_UNKNOWN) as answer:
        found = broker.transactions.coordinator.describe(transactional_id)
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(found.partitions):
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
