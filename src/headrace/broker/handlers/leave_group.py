"""LeaveGroup (key 13): removes members from a group, which rebalances at once and not after their session timeouts.

Speaks v0 to v5. From v3 on a request may name many members, each with its own result, and static members by their
instance id alone. The reason that a member gives (v5) is logged.
"""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.handlers._group_answer import group_answer
from headrace.broker.network.request import Reply, Request
from headrace.groups.group import LeavingMember
from headrace.peer_log import one_line
from headrace.protocol.errors import ErrorCode, UnknownMemberId
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService

logger = getLogger(__name__)

_MANY_MEMBERS_SINCE = 3


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    body = request.body
    if request.version < _MANY_MEMBERS_SINCE:
        leaving = [LeavingMember(member_id=body.member_id)]
    else:
        leaving = [
            LeavingMember(
                member_id=each.member_id, instance_id=each.group_instance_id, reason=getattr(each, "reason", None)
            )
            for each in body.members
        ]
    with group_answer(request, members=()) as answer:
        check(authorizer, request.connection, AclOperation.READ, ResourceType.GROUP, body.group_id)
        codes = _leave(groups, body.group_id, leaving)
        await groups.replicated(body.group_id)
        if request.version < _MANY_MEMBERS_SINCE:
            answer["error_code"] = codes[0]
        answer["members"] = [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": code}
            for each, code in zip(leaving, codes, strict=True)
        ]
    return answer


def _leave(groups: GroupService, group_id: str, leaving: list[LeavingMember]) -> list[ErrorCode]:
    _log_reason(group_id, leaving)
    try:
        group = groups.coordinator.shard_for(group_id).member_group(group_id)
    except UnknownMemberId as error:  # the group does not exist, so none of them is a member
        return [error.code] * len(leaving)
    return group.leave(leaving)


def _log_reason(group_id: str, leaving: list[LeavingMember]) -> None:
    """Logs one line per request: a request may name thousands of members."""
    first = next((each for each in leaving if each.reason), None)
    if first is None:
        return
    others = f", with {len(leaving) - 1} others," if len(leaving) > 1 else ""
    member = one_line(first.member_id or first.instance_id)
    logger.info("member %s%s leaves group %s: %s", member, others, one_line(group_id), one_line(first.reason))
