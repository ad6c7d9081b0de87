"""Lists, describes and deletes groups of both protocols, and removes their members.

A group is described by ConsumerGroupDescribe. If the coordinator answers that the group does not use the consumer
protocol, the group is described by DescribeGroups. The subscription and assignment of a classic member are decoded only
for consumers. For other groups (Kafka Connect), topics and assignment stay empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.admin.requests import AdminRequests, AskedBroker, outcome, raise_for
from headrace.client.admin.types import GroupDescription, GroupListing, GroupMember, Results
from headrace.client.errors import ErrorCode, HeadraceError, error_for
from headrace.client.types import Node, TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.wire.consumer_protocol import Unreadable, decode_assignment, decode_subscription

_CONSUMER = "consumer"
#: The state that DescribeGroups has before v6 for a group that does not exist.
_DEAD = "Dead"


class GroupsAdmin:
    """The groups of a cluster."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """Lists the groups of all brokers.

        :param states: only groups in these states, by Kafka's names: Stable, Empty, ...
        :param types: only groups of these types: Classic, Consumer.
        """
        filters: dict[str, Any] = {"states_filter": list(states), "types_filter": list(types)}

        async def ask(broker: AskedBroker, keys: list[int]) -> Mapping[int, list[GroupListing] | HeadraceError]:
            answer = await broker.ask(Api.LIST_GROUPS, **filters)
            groups = [
                GroupListing(
                    group.group_id,
                    group.protocol_type,
                    getattr(group, "group_state", ""),
                    getattr(group, "group_type", "").capitalize(),
                )
                for group in answer.groups
            ]
            return {keys[0]: outcome(answer.error_code, groups, f"the groups of broker {keys[0]}")}

        ids = await self._requests.all_broker_ids(timeout_ms)
        found = (await self._requests.fan_out(ids, self._requests.brokers, ask, timeout_ms)).all()
        # A group that moves to another coordinator meanwhile may be listed by both.
        groups = {group.group_id: group for listing in found.values() for group in listing}
        return sorted(groups.values())

    async def describe_groups(
        self, groups: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, GroupDescription]:
        """Describes groups: state, members and assignment."""

        async def ask(broker: AskedBroker, keys: list[str]) -> Mapping[str, GroupDescription | HeadraceError]:
            found: dict[str, GroupDescription | HeadraceError] = {}
            if Api.CONSUMER_GROUP_DESCRIBE in broker.connection.versions:
                found = await _describe_consumer_groups(broker, keys)
            classic = [group for group in keys if group not in found]
            return {**found, **(await _describe_classic_groups(broker, classic) if classic else {})}

        return await self._requests.fan_out(groups, self._requests.group_coordinators, ask, timeout_ms)

    async def describe_group(self, group_id: str, *, timeout_ms: float | None = None) -> GroupDescription:
        """Describes one group.

        :raises UnknownGroup: if the group does not exist.
        """
        return (await self.describe_groups([group_id], timeout_ms=timeout_ms)).value(group_id)

    async def delete_groups(self, groups: Iterable[str], *, timeout_ms: float | None = None) -> Results[str, None]:
        """Deletes groups and their committed offsets. A group with members is not deleted (:class:`GroupNotEmpty`)."""

        async def ask(broker: AskedBroker, keys: list[str]) -> Mapping[str, HeadraceError | None]:
            answer = await broker.ask(Api.DELETE_GROUPS, groups_names=keys)
            return {
                group.group_id: outcome(group.error_code, None, f"the group {group.group_id!r}")
                for group in answer.results
            }

        return await self._requests.fan_out(groups, self._requests.group_coordinators, ask, timeout_ms)

    async def delete_group(self, group_id: str, *, timeout_ms: float | None = None) -> None:
        """Deletes one group and its committed offsets.

        :raises GroupNotEmpty: if the group has members.
        """
        (await self.delete_groups([group_id], timeout_ms=timeout_ms)).value(group_id)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[str] | None = None,
        *,
        reason: str = "",
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Removes members from a group. The other members get their partitions. A removed member may join again.

        :param members: member ids, or instance ids of static members. Without it, all members.
        """
        deadline = self._requests.deadline(timeout_ms)
        present = (await self.describe_group(group_id, timeout_ms=timeout_ms)).members
        names = [member.instance_id or member.member_id for member in present] if members is None else list(members)
        known = {member.member_id: member for member in present}
        known |= {member.instance_id: member for member in present if member.instance_id is not None}
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
        :param leaving: the member ids, each with the name that the caller used.
        """
        answer = await self._requests.cluster.ask_coordinator(
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


async def _describe_consumer_groups(
    broker: AskedBroker, groups: list[str]
) -> dict[str, GroupDescription | HeadraceError]:
    """Describes groups of the consumer protocol. Other groups are left out."""
    answer = await broker.ask(Api.CONSUMER_GROUP_DESCRIBE, group_ids=groups, include_authorized_operations=False)
    return {
        group.group_id: outcome(
            group.error_code,
            _consumer_description(group, broker.node),
            f"the group {group.group_id!r}",
            group.error_message,
        )
        for group in answer.groups
        if group.error_code is not ErrorCode.group_id_not_found
    }


def _consumer_description(group: Any, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        "Consumer",
        group.group_state,
        _CONSUMER,
        group.assignor_name,
        tuple(map(_consumer_member, group.members)),
        coordinator,
        int(group.group_epoch),
        int(group.assignment_epoch),
    )


def _consumer_member(member: Any) -> GroupMember:
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


async def _describe_classic_groups(
    broker: AskedBroker, groups: list[str]
) -> dict[str, GroupDescription | HeadraceError]:
    answer = await broker.ask(Api.DESCRIBE_GROUPS, groups=groups, include_authorized_operations=False)
    return {group.group_id: _classic_outcome(group, broker.node) for group in answer.groups}


def _classic_outcome(group: Any, coordinator: Node) -> GroupDescription | HeadraceError:
    code = group.error_code
    if code is ErrorCode.none and group.group_state == _DEAD:
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
            pass  # The bytes of another kind of client. The member is listed without them.
    instance_id = getattr(member, "group_instance_id", None)
    return GroupMember(
        member.member_id, instance_id, member.client_id, member.client_host, tuple(sorted(assignment)), topics
    )
