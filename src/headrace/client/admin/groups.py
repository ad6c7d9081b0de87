"""Groups of both protocols: which there are, who is in them, and their end.

A group is described by ConsumerGroupDescribe and, if its coordinator says that it is none of the consumer protocol, by
DescribeGroups. What members of the classic protocol wrote to each other is read where it is a consumer's; of others
(Kafka Connect) neither topics nor assignment are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.admin.base import AdminBase, Target, outcome, raise_for
from headrace.client.admin.types import GroupDescription, GroupListing, GroupMember, Results
from headrace.client.errors import ErrorCode, HeadraceError, error_for
from headrace.client.types import Node, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.wire.consumer_protocol import Unreadable, decode_assignment, decode_subscription

_CONSUMER = "consumer"
#: How DescribeGroups says, before v6, that a group is not there.
_DEAD = "Dead"


class GroupsAdmin(AdminBase):
    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """The groups of all brokers.

        :param states: only those in these states, Kafka's words: Stable, Empty, ...
        :param types: only those of these types: Classic, Consumer.
        """
        filters: dict[str, Any] = {"states_filter": list(states), "types_filter": list(types)}

        async def ask(target: Target, its: list[int]) -> Mapping[int, list[GroupListing] | HeadraceError]:
            answer = await target.ask(Api.LIST_GROUPS, **filters)
            groups = [
                GroupListing(
                    group.group_id,
                    group.protocol_type,
                    getattr(group, "group_state", ""),
                    getattr(group, "group_type", "").capitalize(),
                )
                for group in answer.groups
            ]
            return {its[0]: outcome(answer.error_code, groups, f"the groups of broker {its[0]}")}

        ids = await self._all_broker_ids(timeout_ms)
        found = (await self._fan_out(ids, self._brokers, ask, timeout_ms)).all()
        # One that moves to another coordinator meanwhile may be told by both.
        groups = {group.group_id: group for listing in found.values() for group in listing}
        return sorted(groups.values())

    async def describe_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, GroupDescription]:
        async def ask(target: Target, its: list[str]) -> Mapping[str, GroupDescription | HeadraceError]:
            found: dict[str, GroupDescription | HeadraceError] = {}
            if Api.CONSUMER_GROUP_DESCRIBE in target.connection.versions:
                found = await _describe_new(target, its)
            classic = [group for group in its if group not in found]
            return {**found, **(await _describe_classic(target, classic) if classic else {})}

        return await self._fan_out(groups, self._group_coordinators, ask, timeout_ms)

    async def describe_group(self, group_id: str, *, timeout_ms: float | None = None) -> GroupDescription:
        """
        :raises UnknownGroup: if there is none.
        """
        return (await self.describe_groups([group_id], timeout_ms=timeout_ms)).value(group_id)

    async def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> Results[str, None]:
        """Deletes groups and what they have committed. One that has members is not deleted (:class:`GroupNotEmpty`)."""

        async def ask(target: Target, its: list[str]) -> Mapping[str, HeadraceError | None]:
            answer = await target.ask(Api.DELETE_GROUPS, groups_names=its)
            return {
                group.group_id: outcome(group.error_code, None, f"the group {group.group_id!r}")
                for group in answer.results
            }

        return await self._fan_out(groups, self._group_coordinators, ask, timeout_ms)

    async def delete_group(self, group_id: str, *, timeout_ms: float | None = None) -> None:
        (await self.delete_groups([group_id], timeout_ms=timeout_ms)).value(group_id)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[str] | None = None,
        *,
        reason: str = "",
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Puts members out of a group; its others share their partitions. Nothing keeps them from joining again.

        :param members: ids of members or, of static ones, of their instances; without, all.
        """
        deadline = self._deadline(timeout_ms)
        there = (await self.describe_group(group_id, timeout_ms=timeout_ms)).members
        names = [member.instance_id or member.member_id for member in there] if members is None else list(members)
        known = {member.member_id: member for member in there}
        known |= {member.instance_id: member for member in there if member.instance_id is not None}
        missing = ErrorCode.unknown_member_id
        results: Results[str, None] = Results(
            (name, error_for(missing, f"the group {group_id!r} has no member {name!r}")) for name in names
        )
        leaving = {known[name].member_id: name for name in names if name in known}
        if leaving:
            results.update(await self._leave(group_id, leaving, known, reason, deadline.left_ms()))
        return results

    async def _leave(
        self, group_id: str, leaving: dict[str, str], known: dict[str, GroupMember], reason: str, timeout_ms: float
    ) -> dict[str, HeadraceError | None]:
        """
        :param leaving: member ids, each with the name that it was given by.
        """
        answer = await self._cluster.ask_coordinator(
            Api.LEAVE_GROUP,
            "group",
            group_id,
            timeout_ms=timeout_ms,
            group_id=group_id,
            members=[
                {
                    "member_id": member_id,
                    "group_instance_id": known[member_id].instance_id,
                    "reason": reason or "removed by an admin client",
                }
                for member_id in leaving
            ],
        )
        raise_for(answer.error_code, f"the group {group_id!r}")
        return {
            leaving[member.member_id]: outcome(member.error_code, None, f"the member {member.member_id!r}")
            for member in answer.members
        }


async def _describe_new(target: Target, groups: list[str]) -> dict[str, GroupDescription | HeadraceError]:
    """Those that are groups of the consumer protocol; others are left out."""
    answer = await target.ask(Api.CONSUMER_GROUP_DESCRIBE, group_ids=groups, include_authorized_operations=False)
    return {
        group.group_id: outcome(
            group.error_code,
            _new_description(group, target.node),
            f"the group {group.group_id!r}",
            group.error_message,
        )
        for group in answer.groups
        if group.error_code is not ErrorCode.group_id_not_found
    }


def _new_description(group: Any, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        "Consumer",
        group.group_state,
        _CONSUMER,
        group.assignor_name,
        tuple(map(_new_member, group.members)),
        coordinator,
        int(group.group_epoch),
        int(group.assignment_epoch),
    )


def _new_member(member: Any) -> GroupMember:
    member_type = int(getattr(member, "member_type", -1))
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        tuple(member.subscribed_topic_names),
        member.subscribed_topic_regex or None,
        _partitions(member.target_assignment),
        int(member.member_epoch),
        member.rack_id,
        None if member_type < 0 else member_type == 0,
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, int(index))
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


async def _describe_classic(target: Target, groups: list[str]) -> dict[str, GroupDescription | HeadraceError]:
    answer = await target.ask(Api.DESCRIBE_GROUPS, groups=groups, include_authorized_operations=False)
    return {group.group_id: _classic_outcome(group, target.node) for group in answer.groups}


def _classic_outcome(group: Any, coordinator: Node) -> GroupDescription | HeadraceError:
    code = group.error_code
    if code is ErrorCode.none and group.group_state == _DEAD:  # how older brokers say that there is none
        code = ErrorCode.group_id_not_found
    said = getattr(group, "error_message", None)
    return outcome(code, _classic_description(group, coordinator), f"the group {group.group_id!r}", said)


def _classic_description(group: Any, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        "Classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_classic_member(member, group.protocol_type) for member in group.members),
        coordinator,
    )


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == _CONSUMER:
        try:
            topics = decode_subscription(member.member_metadata).topics if member.member_metadata else ()
            assignment = decode_assignment(member.member_assignment).partitions
        except Unreadable:
            pass  # a client's own bytes; the member is there all the same
    instance_id = getattr(member, "group_instance_id", None)
    return GroupMember(
        member.member_id, instance_id, member.client_id, member.client_host, tuple(sorted(assignment)), topics
    )
