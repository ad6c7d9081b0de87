"""Migrates a group from one protocol to the other while it has members (KIP-848).

*Upgrade*: a member of the consumer protocol joins a classic group of consumers. Each classic member becomes a member of
the new group. Its epoch is the generation of the classic group, and it keeps the partitions that its leader assigned.

*Downgrade*: the last member of the consumer protocol leaves. The remaining members become a classic group, which
rebalances at once.

In both cases the records of the new kind and the tombstones of the old kind are one batch. So after a crash the group
is of one kind. ``group.consumer.migration.policy`` says which direction is allowed. A group without members may
always change its protocol.
"""

from collections.abc import Mapping

from headrace.groups.classic.group import ClassicGroup
from headrace.groups.classic.members import ClassicMember
from headrace.groups.classic.metadata import CONSUMER_PROTOCOL_TYPE
from headrace.groups.classic.records import member_fields, metadata_record
from headrace.groups.consumer.assignment import Assignment, from_names, to_names
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.member import ClassicMemberMetadata, ConsumerMember
from headrace.groups.consumer.records import (
    epoch_record,
    member_record,
    progress_record,
    target_member_record,
    target_record,
)
from headrace.groups.context import GroupContext, Settings
from headrace.groups.embedded_protocol import (
    Unreadable,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from headrace.protocol.errors import GroupIdNotFound
from headrace.replication.journal import KeyValue

_UPGRADE_POLICIES = ("upgrade", "bidirectional")
_DOWNGRADE_POLICIES = ("downgrade", "bidirectional")


def upgrade_records(group: ClassicGroup, context: GroupContext) -> list[KeyValue]:
    """The records that make a classic group a group of the consumer protocol with the same members.

    :raises GroupIdNotFound: if the group may not migrate. For the client, there is no such consumer group then.
    """
    if group.is_empty:
        return group.tombstones()
    if not _may_upgrade(group, context.settings):
        raise GroupIdNotFound(
            f"the group {group.group_id!r} is a classic group, and may not become a consumer group: it must be a group "
            "of consumers, and group.consumer.migration.policy and group.consumer.max.size must allow it"
        )
    try:
        members = [_upgraded_member(member, group, context) for member in group.members]
    except Unreadable as error:
        raise GroupIdNotFound(
            f"the group {group.group_id!r} is a classic group, and cannot become a consumer group: "
            f"the subscription or assignment of a member cannot be read: {error}"
        ) from None
    group_id, epoch = group.group_id, group.generation_id
    return [
        *group.tombstones(),
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, 0),
        *(target_member_record(group_id, member.member_id, member.assigned) for member in members),
        target_record(group_id, epoch, 0),
        *(progress_record(group_id, member) for member in members),
    ]


def _may_upgrade(group: ClassicGroup, settings: Settings) -> bool:
    return (
        settings.str("group.consumer.migration.policy").lower() in _UPGRADE_POLICIES
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.members) <= settings.int("group.consumer.max.size")
    )


def _upgraded_member(member: ClassicMember, group: ClassicGroup, context: GroupContext) -> ConsumerMember:
    subscription = read_subscription(member.protocols[0][1])
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic_metadata=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=from_names(read_assignment(member.assignment), context.topics),
    )


def should_downgrade(group: ConsumerGroup, settings: Settings) -> bool:
    """Tells whether all members of a group use the classic protocol, and the group may become a classic group."""
    members = group.metadata.members.values()
    return (
        bool(members)
        and all(member.classic_metadata is not None for member in members)
        and settings.str("group.consumer.migration.policy").lower() in _DOWNGRADE_POLICIES
        and len(members) <= settings.int("group.max.size")
    )


def downgrade_records(group: ConsumerGroup, context: GroupContext) -> list[KeyValue]:
    """The records that make a group whose members all use the classic protocol a classic group."""
    members = [
        (member, member.classic_metadata)
        for member in group.metadata.members.values()
        if member.classic_metadata is not None
    ]
    protocol_name = _common_protocol([classic for _, classic in members])
    record = metadata_record(
        group.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.metadata.epoch,
        protocol=protocol_name,
        leader=members[0][0].member_id,
        current_state_timestamp=context.clock.wall_ms(),
        members=[
            member_fields(
                member,
                session_timeout_ms=classic.session_timeout_ms,
                subscription=dict(classic.protocols)[protocol_name],
                assignment=_assignment_of(member.assigned, dict(classic.protocols), protocol_name, context),
            )
            for member, classic in members
        ],
    )
    return [*group.tombstones(), record]


def _common_protocol(members: list[ClassicMemberMetadata]) -> str:
    """The first protocol of the first member that all others support. A member without one could not have joined."""
    others = [dict(member.protocols) for member in members[1:]]
    return next(name for name, _ in members[0].protocols if all(name in other for other in others))


def _assignment_of(
    assigned: Assignment, protocols: Mapping[str, bytes], protocol_name: str, context: GroupContext
) -> bytes:
    return write_assignment(version_of(protocols[protocol_name]), to_names(assigned, context.topics))
