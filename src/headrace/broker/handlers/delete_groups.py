"""DeleteGroups (key 42): deletes groups and their committed offsets.

Speaks v0 to v2. A group that has members is NON_EMPTY_GROUP, a group that does not exist is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import check
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    names = request.body.groups_names
    repeated = await request.slices.repeated(names, lambda name: name)

    async def delete(group_id: str) -> dict[str, object] | None:
        if repeated.was_met_before(group_id):
            return None
        with code_for_errors(group_id=group_id) as answer:
            check(authorizer, request.connection, AclOperation.DELETE, ResourceType.GROUP, group_id)
            groups.coordinator.shard_for(group_id).delete_group(group_id)
            await groups.replicated(group_id)
        return answer

    return {"results": await request.awaited_answers(names, delete, "results")}
