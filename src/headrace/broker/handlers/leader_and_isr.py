"""LeaderAndIsr (key 4): the controller tells a broker which partitions it leads and follows.

Speaks v5 to v7, between brokers of a cluster only. STALE_CONTROLLER_EPOCH and STALE_BROKER_EPOCH refuse the whole
request; otherwise each partition has its own code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check_cluster
from headrace.broker.control_messages import leader_and_isr_reply, read_leader_and_isr
from headrace.broker.network.request import Reply, Request
from headrace.controller.decisions.broker_requests import LeaderAndIsrResponse
from headrace.protocol.errors import KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.control_requests import ControlRequests


async def handle(
    request: Request, authorizer: Authorizer, broker_id: int, config: BrokerConfig, control_requests: ControlRequests
) -> Reply:
    message = read_leader_and_isr(request.body, broker_id, config.listeners.inter_broker)
    try:
        check_cluster(authorizer, request.connection, AclOperation.CLUSTER_ACTION)
        answer = await control_requests.leader_and_isr(message)
    except KafkaError as error:
        answer = LeaderAndIsrResponse(error.code, {})
    return leader_and_isr_reply(message, answer)
