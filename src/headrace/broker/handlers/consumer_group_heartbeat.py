"""ConsumerGroupHeartbeat (key 68): a member joins a group of the consumer protocol, stays in it, or leaves (KIP-848).

Speaks v0 and v1. Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). From v1 on members generate their
own ids. Members may also subscribe by a regular expression in RE2's syntax; an invalid expression is
INVALID_REGULAR_EXPRESSION. The assignors are uniform and range. Neither of them considers racks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.handlers._group_answer import group_answer
from headrace.broker.handlers._waiting import host_of
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.groups.consumer.assignment import from_wire, to_wire
from headrace.groups.consumer.assignors import configured_assignors
from headrace.groups.consumer.heartbeat import ConsumerHeartbeatRequest
from headrace.protocol.errors import InvalidRequest, UnsupportedVersion

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.group_service import GroupService

_MEMBER_GENERATES_ID_SINCE = 1
_PROTOCOL = "consumer"


async def handle(request: Request, config: BrokerConfig, groups: GroupService) -> Reply:
    group_id = request.body.group_id
    with group_answer(request, member_epoch=0) as answer:
        if _PROTOCOL not in config.list("group.coordinator.rebalance.protocols"):
            raise UnsupportedVersion(
                "the consumer protocol is disabled by the setting group.coordinator.rebalance.protocols"
            )
        if not group_id:
            raise InvalidRequest("GroupId is empty")
        heartbeat = _heartbeat(request)
        heartbeat.check(configured_assignors(config), needs_member_id=request.version >= _MEMBER_GENERATES_ID_SINCE)
        response = groups.coordinator.shard_for(group_id).consumer_heartbeat(group_id, heartbeat)
        await groups.replicated(group_id)
        assigned = response.assignment
        answer.update(
            member_id=response.member_id,
            member_epoch=response.epoch,
            heartbeat_interval=response.heartbeat_interval_ms,
            assignment=None if assigned is None else {"topic_partitions": to_wire(assigned)},
        )
    return answer


def _heartbeat(request: Request) -> ConsumerHeartbeatRequest:
    body = request.body
    return ConsumerHeartbeatRequest(
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout),
        topic_names=None if body.subscribed_topic_names is None else frozenset(body.subscribed_topic_names),
        topic_regex=getattr(body, "subscribed_topic_regex", None),
        server_assignor=body.server_assignor,
        owned=None if body.topic_partitions is None else from_wire(body.topic_partitions),
        client_id=request.client_id or "",
        client_host=host_of(request),
    )
