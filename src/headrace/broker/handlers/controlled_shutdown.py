"""ControlledShutdown (key 7): a broker that stops asks the controller to move its leaderships to other brokers.

Speaks v2 and v3, between brokers of a cluster only. Answers with the partitions that the broker still leads, because no
other replica is in sync. The broker then asks again, or stops all the same. Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH,
BROKER_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.control_requests import ControlRequests


async def handle(request: Request, authorizer: Authorizer, control_requests: ControlRequests) -> Reply:
    body = request.body
    try:
        check_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION)
        remaining = await control_requests.controlled_shutdown(body.broker_id, body.broker_epoch)
    except KafkaError as error:
        return {"error_code": error.code, "remaining_partitions": ()}
    return {
        "remaining_partitions": [{"topic_name": topic, "partition_index": index} for topic, index in sorted(remaining)]
    }
