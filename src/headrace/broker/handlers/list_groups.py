"""ListGroups (key 16): the groups that this broker coordinates.

Speaks v0 to v5. Filters by state (v4, KIP-518) and by type (v5, KIP-848) ignore case; an unknown state or type matches
no group. While the broker still loads groups, it answers the loaded groups with COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorization.checks import is_allowed_on_cluster
from headrace.broker.network.request import Reply, Request
from headrace.protocol.errors import ErrorCode
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.groups.group import Group


async def handle(request: Request, authorizer: Authorizer, groups: GroupService) -> Reply:
    states = {state.lower() for state in getattr(request.body, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request.body, "types_filter", ())}
    coordinator = groups.coordinator
    connection = request.connection
    may_see_all = is_allowed_on_cluster(authorizer, connection, AclOperation.DESCRIBE, log_denied=False)

    def is_wanted(group: Group) -> bool:
        return (
            (not states or group.state_name.lower() in states)
            and (not kinds or group.kind in kinds)
            and (
                may_see_all
                or authorizer.is_allowed(
                    connection, AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id, log_denied=False
                )
            )
        )

    error_code = ErrorCode.coordinator_load_in_progress if coordinator.is_loading else ErrorCode.none
    found = [group for shard in coordinator.shards() for group in shard.groups.values()]
    return {
        "error_code": error_code,
        "groups": await request.answers(
            found, lambda group: _described(group) if is_wanted(group) else None, "groups", from_state=True
        ),
    }


def _described(group: Group) -> dict[str, object]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type or "",
        "group_state": group.state_name,
        "group_type": group.kind,
    }
