"""WriteTxnMarkers (key 27): ends a transaction in the partitions that this broker leads.

Speaks v1 and v2. Coordinators on other brokers send it, and ``kafka-transactions abort``, for a transaction that its
coordinator has forgotten (KIP-664). A marker of an older producer epoch or coordinator epoch is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.dispatch import Reply
from headrace.broker.request import Request
from headrace.protocol.errors import ErrorCode, error_code_of
from headrace.transactions.markers import Marker

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    return {"markers": [_answer(broker, each) for each in request.body.markers]}


def _answer(broker: Broker, asked: Any) -> dict[str, object]:
    marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch)
    return {
        "producer_id": asked.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": _write(broker, topic.name, index, marker)}
                    for index in topic.partition_indexes
                ],
            }
            for topic in asked.topics
        ],
    }


def _write(broker: Broker, topic: str, index: int, marker: Marker) -> ErrorCode:
    try:
        broker.transactions.markers.write(topic, index, marker)
    except Exception as error:  # noqa: BLE001  becomes a code, and is logged if it is ours
        return error_code_of(error)
    return ErrorCode.none
