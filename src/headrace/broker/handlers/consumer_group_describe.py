"""ConsumerGroupDescribe (key 69): the members of groups of the consumer protocol, with their assignments.

Speaks v0 and v1; v1 answers which protocol each member uses. A group that does not exist is GROUP_ID_NOT_FOUND. So is a
classic group, which DescribeGroups shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.authorization.authorizer import OPERATIONS_NOT_ASKED
from headrace.broker.authorization.checks import allowed_topics, check
from headrace.broker.network.request import Reply, Request
from headrace.groups.consumer.assignment import Assignment
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.member import ConsumerMember
from headrace.groups.consumer.metadata import ConsumerGroupMetadata
from headrace.protocol.errors import GroupIdNotFound, InvalidGroupId, TopicAuthorizationFailed, code_for_errors
from headrace.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.metadata_cache import MetadataCache

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1

_NOTHING = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": ()}


async def handle(request: Request, authorizer: Authorizer, groups: GroupService, metadata: MetadataCache) -> Reply:
    body = request.body
    connection = request.connection
    may_describe = allowed_topics(authorizer, connection, AclOperation.DESCRIBE)

    def describe(group_id: str) -> dict[str, object]:
        with code_for_errors(**_NOTHING, group_id=group_id, authorized_operations=OPERATIONS_NOT_ASKED) as answer:
            check(authorizer, connection, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
            answer.update(_describe(groups, metadata, group_id, may_describe))
            if body.include_authorized_operations and not answer.get("error_code"):
                answer["authorized_operations"] = authorizer.authorized_operations(
                    connection, ResourceType.GROUP, group_id
                )
        return answer

    return {"groups": await request.answers(body.group_ids, describe, "groups", from_state=True)}


def _describe(
    groups: GroupService, metadata: MetadataCache, group_id: str, may_describe: Callable[[str], bool]
) -> dict[str, object]:
    with code_for_errors(group_id=group_id, **_NOTHING) as answer:
        if not group_id:
            raise InvalidGroupId("the id of the group is empty")
        group = groups.coordinator.shard_for(group_id).group(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"the consumer group {group_id!r} does not exist")
        state = group.metadata
        if not all(map(may_describe, _assigned_topics(metadata, state))):
            raise TopicAuthorizationFailed(
                "The group has described topic(s) that the client is not authorized to describe."
            )
        answer.update(
            group_state=group.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch,
            assignor_name=group.assignor_name,
            members=[_member(metadata, member, state.target_of(member.member_id)) for member in state.members.values()],
        )
    return answer


def _assigned_topics(metadata: MetadataCache, state: ConsumerGroupMetadata) -> set[str]:
    """Returns the names of all topics that members have, or will get."""
    ids = {
        topic_id
        for member in state.members.values()
        for assignment in (member.assigned, state.target_of(member.member_id))
        for topic_id in assignment
    }
    return {topic.name for topic_id in ids if (topic := metadata.get_by_id(topic_id)) is not None}


def _member(metadata: MetadataCache, member: ConsumerMember, target: Assignment) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": _named(metadata, member.assigned),
        "target_assignment": _named(metadata, target),
        "member_type": _CONSUMER_MEMBER if member.classic_metadata is None else _CLASSIC_MEMBER,
    }


def _named(metadata: MetadataCache, assignment: Assignment) -> dict[str, object]:
    """Describes an assignment with the names of its topics. Topics that were deleted meanwhile are left out."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(assignment[topic_id])}
            for topic_id in sorted(assignment)
            if (topic := metadata.get_by_id(topic_id)) is not None
        ]
    }
