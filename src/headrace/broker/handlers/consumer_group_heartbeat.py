"""ConsumerGroupHeartbeat (key 68): a member joins a group of the consumer protocol, stays in it, or leaves (KIP-848).

Speaks v0 and v1. Epoch 0 joins, -1 leaves, -2 leaves for a while (static members). From v1 on members generate their
own ids. Members may also subscribe by a regular expression in RE2's syntax; an invalid expression is
INVALID_REGULAR_EXPRESSION. The assignors are uniform and range. Neither of them considers racks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.authorization.checks import allowed_topics, authorization_failed, check
from headrace.broker.handlers._group_answer import group_answer
from headrace.broker.handlers._waiting import host_of
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.groups.consumer.assignment import from_wire, to_wire
from headrace.groups.consumer.assignors import configured_assignors
from headrace.groups.consumer.heartbeat import ConsumerHeartbeatRequest
from headrace.protocol.errors import InvalidRequest, UnsupportedVersion
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.protocol.api import Api
    from headrace.security.principal import Principal

_MEMBER_GENERATES_ID_SINCE = 1
_PROTOCOL = "consumer"


async def handle(request: Request, authorizer: Authorizer, config: BrokerConfig, groups: GroupService) -> Reply:
    group_id = request.body.group_id
    with group_answer(request, member_epoch=0) as answer:
        if _PROTOCOL not in config.list("group.coordinator.rebalance.protocols"):
            raise UnsupportedVersion(
                "the consumer protocol is disabled by the setting group.coordinator.rebalance.protocols"
            )
        check(authorizer, request.connection, AclOperation.READ, ResourceType.GROUP, group_id)
        may_describe = allowed_topics(authorizer, request.connection, AclOperation.DESCRIBE)
        if not all(map(may_describe, set(request.body.subscribed_topic_names or ()))):
            raise authorization_failed(ResourceType.TOPIC)
        if not group_id:
            raise InvalidRequest("GroupId is empty")
        heartbeat = _heartbeat(request, partial(_may_describe, authorizer, _Requester.of(request)))
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


class _Requester(NamedTuple):
    """The member, without its connection: the group keeps this until the member's next heartbeat."""

    principal: Principal
    host: str
    current_api: Api

    @classmethod
    def of(cls, request: Request) -> _Requester:
        return cls(request.connection.principal, request.connection.host, request.api)


def _may_describe(authorizer: Authorizer, member: _Requester, topic: str) -> bool:
    return authorizer.is_allowed(member, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, log_denied=False)


def _heartbeat(request: Request, may_describe: Callable[[str], bool]) -> ConsumerHeartbeatRequest:
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
        may_describe=may_describe,
    )
