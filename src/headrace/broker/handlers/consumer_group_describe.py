"""ConsumerGroupDescribe (key 69): the members of groups of the consumer protocol, with their assignments.

Speaks v0 and v1; v1 answers which protocol each member uses. A group that does not exist is GROUP_ID_NOT_FOUND. So is a
classic group, which DescribeGroups shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.authorized import GROUP_OPERATIONS
from headrace.broker.network.request import Reply, Request
from headrace.groups.consumer.assignment import Assignment
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.member import ConsumerMember
from headrace.groups.consumer.metadata import ConsumerGroupState
from headrace.protocol.errors import GroupIdNotFound, InvalidGroupId, code_for_errors

if TYPE_CHECKING:
    from headrace.broker.coordinators.group_service import GroupService
    from headrace.broker.metadata_cache import MetadataCache

_OPERATIONS_NOT_ASKED = -(2**31)
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


async def handle(request: Request, groups: GroupService, metadata: MetadataCache) -> Reply:
    body = request.body
    operations = GROUP_OPERATIONS if body.include_authorized_operations else _OPERATIONS_NOT_ASKED

    def describe(group_id: str) -> dict[str, object]:
        return {**_describe(groups, metadata, group_id), "authorized_operations": operations}

    return {"groups": await request.answers(body.group_ids, describe, "groups")}


def _describe(groups: GroupService, metadata: MetadataCache, group_id: str) -> dict[str, object]:
    nothing = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": ()}
    with code_for_errors(group_id=group_id, **nothing) as answer:
        if not group_id:
            raise InvalidGroupId("the id of the group is empty")
        group = groups.coordinator.shard_for(group_id).group(group_id)
        if not isinstance(group, ConsumerGroup):
            answer["group_state"] = ConsumerGroupState.DEAD.value
            raise GroupIdNotFound(f"the consumer group {group_id!r} does not exist")
        state = group.metadata
        answer.update(
            group_state=group.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.target_epoch,
            assignor_name=group.assignor_name,
            members=[_member(metadata, member, state.target_of(member.member_id)) for member in state.members.values()],
        )
    return answer


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
