"""Heartbeat (key 12): a member of a classic group says that it is alive, and learns whether it must join again.

Speaks v0 to v4. REBALANCE_IN_PROGRESS asks the member to join again. ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID mean that
it is not a member any more. From v3 on members may be static: a member that was replaced gets FENCED_INSTANCE_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.handlers._group_answer import group_answer
from headrace.broker.network.request import Reply, Request
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    body = request.body
    with group_answer(request) as answer:
        check(authorizer, request.connection, AclOperation.READ, ResourceType.GROUP, body.group_id)
        group = groups.coordinator.shard_for(body.group_id).member_group(body.group_id)
        group.heartbeat(body.member_id, body.generation_id, getattr(body, "group_instance_id", None))
    return answer
