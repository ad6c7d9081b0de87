"""StopReplica (key 5): the controller tells a broker to stop replicas, and to delete some of them.

Speaks v3 and v4, between brokers of a cluster only. STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH refuse the whole
request; otherwise each partition has its own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.control_messages import read_stop_replica, stop_replica_reply
from headrace.broker.network.request import Reply, Request
from headrace.controller.decisions.broker_requests import StopReplicaResponse
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.control_requests import ControlRequests


async def handle(request: Request, authorizer: Authorizer, broker_id: int, control_requests: ControlRequests) -> Reply:
    try:
        check_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION)
        answer = await control_requests.stop_replica(read_stop_replica(request.body, broker_id))
    except KafkaError as error:
        answer = StopReplicaResponse(error.code, {})
    return stop_replica_reply(answer)
