"""DescribeGroups (key 15): the state of classic groups, with their members and assignments.

Speaks v0 to v6. Only Stable groups are answered with protocol, metadata and assignments. A group that does not exist is
answered as Dead, from v6 on also with GROUP_ID_NOT_FOUND (KIP-1043). So is a group of the consumer protocol, which
ConsumerGroupDescribe shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.authorizer import OPERATIONS_NOT_ASKED
from headrace.broker.authorization.checks import check
from headrace.broker.network.request import Reply, Request
from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.classic.states import ClassicGroupState
from headrace.protocol.errors import GroupIdNotFound, code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService

_GROUP_ID_NOT_FOUND_SINCE = 6

_NOTHING = {"group_state": "", "protocol_type": "", "protocol_data": "", "members": ()}


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    body = request.body
    with_operations = getattr(body, "include_authorized_operations", False)

    def describe(group_id: str) -> dict[str, object]:
        with code_for_errors(**_NOTHING, group_id=group_id, authorized_operations=OPERATIONS_NOT_ASKED) as answer:
            check(authorizer, request.connection, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
            answer.update(_describe(groups, group_id, request.version))
            if with_operations and not answer.get("error_code"):
                answer["authorized_operations"] = authorizer.authorized_operations(
                    request.connection, ResourceType.GROUP, group_id
                )
        return answer

    return {"groups": await request.answers(body.groups, describe, "groups", from_state=True)}


def _describe(groups: GroupService, group_id: str, version: int) -> dict[str, object]:
    with code_for_errors(group_id=group_id, **_NOTHING) as answer:
        group = groups.coordinator.shard_for(group_id).group(group_id)
        if not isinstance(group, ClassicGroup):
            answer["group_state"] = ClassicGroupState.DEAD.value
            if version >= _GROUP_ID_NOT_FOUND_SINCE:
                raise GroupIdNotFound(f"the classic group {group_id!r} does not exist")
            return answer
        protocol_name = group.protocol_name if group.state is ClassicGroupState.STABLE else None
        answer.update(
            group_state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[_member(member, protocol_name) for member in group.members],
        )
    return answer


def _member(member: ClassicMember, protocol_name: str | None) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(protocol_name),
        "member_assignment": b"" if protocol_name is None else member.assignment,
    }
