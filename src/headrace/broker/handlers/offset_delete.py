"""OffsetDelete (key 47): deletes the committed offsets of a group for some partitions.

Speaks v0. The group must exist (GROUP_ID_NOT_FOUND). Offsets of a topic that a member subscribes to are not deleted
(GROUP_SUBSCRIBED_TO_TOPIC). If the members' protocol does not say which topics they read, no offsets are deleted
(NON_EMPTY_GROUP).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.authorization.checks import allowed_topics, check
from headrace.broker.network.request import Reply, Request
from headrace.groups.committing import client_error_code
from headrace.groups.group import Group
from headrace.protocol.errors import ErrorCode, GroupIdNotFound, InvalidGroupId
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.metadata_cache import MetadataCache


async def handle(request: Request, authorizer: Authorizer, metadata: MetadataCache, groups: GroupService) -> Reply:
    may_read = allowed_topics(authorizer, request.connection, AclOperation.READ)
    try:
        check(authorizer, request.connection, AclOperation.DELETE, ResourceType.GROUP, request.body.group_id)
        topics = _delete(metadata, groups, request.body, may_read)
        await groups.replicated(request.body.group_id)
    except Exception as error:  # noqa: BLE001  becomes an error code; our own mistakes are logged
        return {"error_code": client_error_code(error), "topics": ()}
    return {"topics": topics}


def _delete(
    metadata: MetadataCache, groups: GroupService, body: Any, may_read: Callable[[str], bool]
) -> list[dict[str, object]]:
    if not body.group_id:
        raise InvalidGroupId("the id of the group is empty")
    shard = groups.coordinator.shard_for(body.group_id)
    group = shard.group(body.group_id)
    if group is None:
        raise GroupIdNotFound(f"group {body.group_id!r} does not exist")
    group.check_offset_delete()
    answers = {
        topic.name: _codes(metadata, group, topic) if may_read(topic.name) else _refusals(topic)
        for topic in body.topics
    }
    allowed = [(name, index) for name, codes in answers.items() for index, code in codes.items() if not code]
    shard.write(shard.offsets.delete_records(body.group_id, allowed))
    return [
        {
            "name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in codes.items()],
        }
        for name, codes in answers.items()
    ]


def _refusals(asked: Any) -> dict[int, ErrorCode]:
    return dict.fromkeys((wanted.partition_index for wanted in asked.partitions), ErrorCode.topic_authorization_failed)


def _codes(metadata: MetadataCache, group: Group, asked: Any) -> dict[int, ErrorCode]:
    topic = metadata.get(asked.name)
    known = range(0 if topic is None else len(topic.partitions))
    allowed = ErrorCode.group_subscribed_to_topic if group.is_subscribed_to(asked.name) else ErrorCode.none
    return {
        wanted.partition_index: allowed if wanted.partition_index in known else ErrorCode.unknown_topic_or_partition
        for wanted in asked.partitions
    }
