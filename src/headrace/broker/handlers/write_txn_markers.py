"""WriteTxnMarkers (key 27): ends transactions in the partitions that this broker leads.

Speaks v1 and v2. Coordinators on other brokers send it. ``kafka-transactions abort`` sends it for a transaction that
its coordinator does not know any more (KIP-664). A marker of an older producer epoch or coordinator epoch is refused.
In a cluster the answer comes when the markers are committed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.coordinators.committed import MARKER_COMMIT_TIMEOUT_MS, Append
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode, error_code_of
from headrace.security.acls import AclOperation
from headrace.transactions.markers import Marker

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.committed import CommitWaits
    from headrace.broker.coordinators.transaction_service import TransactionService

#: The number of a marker in the request, a topic and a partition.
Key = tuple[int, str, int]


async def handle(
    request: Request,
    authorizer: Authorizer,
    transactions: TransactionService,
    commit_waits: CommitWaits,
) -> Reply:
    asked = list(enumerate(request.body.markers))
    if not is_allowed_on_cluster(
        authorizer, request.connection, AclOperation.ALTER, log_denied=False
    ) and not is_allowed_on_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION):
        refused = defaultdict[Key, ErrorCode](lambda: ErrorCode.cluster_authorization_failed)
        return {"markers": [_answer(number, each, refused) for number, each in asked]}
    codes = defaultdict[Key, ErrorCode](lambda: ErrorCode.none)
    waits: dict[Key, Append] = {}
    for number, each in asked:
        marker = Marker(each.producer_id, each.producer_epoch, each.transaction_result, each.coordinator_epoch)
        for key in ((number, topic.name, index) for topic in each.topics for index in topic.partition_indexes):
            try:
                waits[key] = transactions.markers.write(*key[1:], marker)
            except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
                codes[key] = error_code_of(error)
    if waits:
        errors = await commit_waits.outcomes(list(waits.values()), MARKER_COMMIT_TIMEOUT_MS)
        codes.update((key, error.code) for key, error in zip(waits, errors, strict=True) if error is not None)
    return {"markers": [_answer(number, each, codes) for number, each in asked]}


def _answer(number: int, asked: Any, codes: dict[Key, ErrorCode]) -> dict[str, object]:
    return {
        "producer_id": asked.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": codes[number, topic.name, index]}
                    for index in topic.partition_indexes
                ],
            }
            for topic in asked.topics
        ],
    }
