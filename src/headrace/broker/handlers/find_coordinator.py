"""FindCoordinator (key 10): there is none yet; groups and transactions are not served.

Speaks v0 to v6, and answers COORDINATOR_NOT_AVAILABLE to every key. It must be spoken all the same: librdkafka takes a
broker without it for one that does not know lz4, and then sends such batches uncompressed without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.dispatch import Reply
from headrace.broker.request import Request
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.broker import Broker

_MANY_KEYS = 4


async def handle(request: Request, broker: Broker) -> Reply:
    nobody = {
        "error_code": ErrorCode.coordinator_not_available,
        "error_message": "groups and transactions are not served yet",
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if request.version < _MANY_KEYS:
        return nobody
    return {"coordinators": [{"key": key, **nobody} for key in request.body.coordinator_keys]}
