"""UpdateMetadata (key 6): the controller sends the brokers, topics and leaders of the cluster to a broker.

Speaks v7 and v8, between brokers of a cluster only. Errors: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.control_messages import read_update_metadata
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.control_requests import ControlRequests


async def handle(request: Request, authorizer: Authorizer, broker_id: int, control_requests: ControlRequests) -> Reply:
    try:
        check_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION)
        await control_requests.update_metadata(read_update_metadata(request.body, broker_id))
    except KafkaError as error:
        return {"error_code": error.code}
    return {}
