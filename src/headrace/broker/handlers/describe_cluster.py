"""DescribeCluster (key 60): the brokers, the controller and the cluster's id.

Speaks v0 to v2. There are no separate controllers to describe (endpoint type 2 is MISMATCHED_ENDPOINT_TYPE), and no
fenced brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.metadata_cache import MetadataCache
    from headrace.broker.services import NodesSeenBy

_BROKERS, _CONTROLLERS = 1, 2


async def handle(
    request: Request, authorizer: Authorizer, metadata: MetadataCache, nodes_seen_by: NodesSeenBy
) -> Reply:
    endpoint_type = getattr(request.body, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        known = endpoint_type == _CONTROLLERS
        return {
            "error_code": ErrorCode.mismatched_endpoint_type if known else ErrorCode.unsupported_endpoint_type,
            "error_message": "this is the endpoint of a broker; there are no endpoints of controllers",
            "endpoint_type": endpoint_type,
            "cluster_id": "",
            "brokers": (),
        }
    reply = {
        "cluster_id": metadata.cluster_id,
        "controller_id": metadata.controller_id,
        "brokers": [
            {"broker_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack, "is_fenced": False}
            for node in nodes_seen_by(request.connection)
        ],
    }
    if request.body.include_cluster_authorized_operations:
        reply["cluster_authorized_operations"] = (
            authorizer.authorized_operations(request.connection, ResourceType.CLUSTER, CLUSTER_NAME)
            if is_allowed_on_cluster(authorizer, request.connection, AclOperation.DESCRIBE)
            else 0
        )
    return reply
