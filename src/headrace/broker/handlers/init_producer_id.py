"""InitProducerId (key 22): an id for an idempotent producer.

Speaks v0 to v6. Ids come in blocks from the znode tree, so none is ever given twice. An idempotent producer that knows
its id and epoch, and wants the next epoch (KIP-360), is given a new id instead, which serves it as well.

Not here yet: transactional ids. They are refused with COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.dispatch import Reply
from headrace.broker.request import Request
from headrace.protocol.errors import ErrorCode, error_code_of

if TYPE_CHECKING:
    from headrace.broker.broker import Broker


async def handle(request: Request, broker: Broker) -> Reply:
    failed = {"producer_id": -1, "producer_epoch": -1}
    if request.body.transactional_id is not None:
        code = ErrorCode.coordinator_not_available if request.body.transactional_id else ErrorCode.invalid_request
        return {"error_code": code, **failed}
    try:
        producer_id = await broker.producer_ids.next()
    except Exception as error:  # noqa: BLE001  becomes a code, and is logged if it is ours
        return {"error_code": error_code_of(error), **failed}
    return {"producer_id": producer_id, "producer_epoch": 0}
