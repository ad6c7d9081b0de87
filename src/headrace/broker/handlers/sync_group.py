"""SyncGroup (key 14): the leader of a group sends the assignment, and every member gets its part.

Speaks v0 to v5. The other members wait for the leader. From v3 on members may be static. From v5 on a member must give
the protocol type and name of the group (otherwise INCONSISTENT_GROUP_PROTOCOL), and the answer repeats them (KIP-559).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.handlers._group_answer import group_error_code
from headrace.broker.handlers._waiting import answer_of
from headrace.broker.network.request import Reply, Request
from headrace.groups.group import SyncRequest, SyncResponse
from headrace.protocol.errors import ErrorCode, InconsistentGroupProtocol
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService

_PROTOCOL_SINCE = 5


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    body = request.body
    syncing = SyncRequest(
        member_id=body.member_id,
        generation_id=body.generation_id,
        instance_id=getattr(body, "group_instance_id", None),
        protocol_type=getattr(body, "protocol_type", None),
        protocol_name=getattr(body, "protocol_name", None),
        assignments={each.member_id: bytes(each.assignment) for each in body.assignments},
    )
    try:
        if request.version >= _PROTOCOL_SINCE and None in (syncing.protocol_type, syncing.protocol_name):
            raise InconsistentGroupProtocol("the protocol type or the protocol name is missing")
        check(authorizer, request.connection, AclOperation.READ, ResourceType.GROUP, body.group_id)
        group = groups.coordinator.shard_for(body.group_id).member_group(body.group_id)
        synced = await answer_of(partial(group.sync, syncing))
        if synced.error is ErrorCode.none:
            await groups.replicated(body.group_id)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        synced = SyncResponse(error=group_error_code(request, error))
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol_name,
        "assignment": synced.assignment,
    }
