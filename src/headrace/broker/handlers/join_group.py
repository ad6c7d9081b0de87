"""JoinGroup (key 11): a member joins a group of the classic protocol, or the next generation of the group.

Speaks v0 to v9. The answer comes when all members have joined the generation. From v4 on a new member first gets its id
(MEMBER_ID_REQUIRED, KIP-394). From v5 on members may be static (KIP-345). From v9 on the answer may ask the leader to
keep the assignment (KIP-814). The reason that a member gives (v8) is logged.
"""

from __future__ import annotations

from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import check
from headrace.broker.handlers._group_answer import group_error_code
from headrace.broker.handlers._waiting import answer_of, host_of
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.groups.group import JoinRequest, JoinResponse
from headrace.peer_log import one_line
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService

logger = getLogger(__name__)

_MEMBER_ID_REQUIRED_SINCE = 4
_NULL_PROTOCOL_NAME_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    body = request.body
    joining = _joining(request, body)
    try:
        check(authorizer, request.connection, AclOperation.READ, ResourceType.GROUP, body.group_id)
        if getattr(body, "reason", None):
            member = one_line(body.member_id or request.client_id)
            logger.info("member %s joins group %s: %s", member, one_line(body.group_id), one_line(body.reason))
        shard = groups.coordinator.shard_for(body.group_id)
        joined = await answer_of(partial(shard.join, body.group_id, joining))
        if joined.error is ErrorCode.none:
            await groups.replicated(body.group_id)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        joined = JoinResponse(member_id=body.member_id, error=group_error_code(request, error))
    return _reply(joined, request.version)


def _joining(request: Request, body: Any) -> JoinRequest:
    session_timeout_ms = milliseconds(body.session_timeout)
    return JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=host_of(request),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout) if request.version > 0 else session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
        needs_member_id=request.version >= _MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=request.version >= _SKIP_ASSIGNMENT_SINCE,
    )


def _reply(joined: JoinResponse, version: int) -> dict[str, object]:
    name = joined.protocol_name
    return {
        "error_code": joined.error,
        "generation_id": joined.generation_id,
        "protocol_type": joined.protocol_type,
        "protocol_name": "" if name is None and version < _NULL_PROTOCOL_NAME_SINCE else name,
        "leader": joined.leader_id,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }
