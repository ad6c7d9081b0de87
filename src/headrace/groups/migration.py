"""A group changes its protocol, with its members in it (KIP-848).

*Upgrade*: a member of the consumer protocol joins a classic group of consumers. Each of the classic members becomes a
member of the new group, at the epoch that was the group's generation, with the partitions that its leader gave it.
*Downgrade*: the last member of the consumer protocol goes. Those that are left become a classic group, which rebalances
at once. Either way the records of the one kind and the tombstones of the other are one batch: after a crash the group
is of one kind. ``group.consumer.migration.policy`` says which way is allowed; a group without members goes either way.
"""

from collections.abc import Mapping

from headrace.groups.assignment import Assignment
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.consumer_classic import CONSUMER, by_ids, by_names
from headrace.groups.consumer_member import ClassicSide, ConsumerMember
from headrace.groups.consumer_protocol import (
    Unreadable,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from headrace.groups.consumer_records import (
    current_record,
    epoch_record,
    member_record,
    target_member_record,
    target_record,
)
from headrace.groups.context import GroupContext, Settings
from headrace.groups.members import Member
from headrace.protocol.errors import GroupIdNotFound
from headrace.protocol.internal_records import RecordType, encode_key, encode_value
from headrace.replication.journal import KeyValue

_UPGRADES = ("upgrade", "bidirectional")
_DOWNGRADES = ("downgrade", "bidirectional")


def upgraded(group: ClassicGroup, context: GroupContext) -> list[KeyValue]:
    """What makes a classic group one of the consumer protocol, with the same members.

    :raises GroupIdNotFound: if it may not become one: then, to who asks, there is no such consumer group.
    """
    if group.is_empty:
        return group.tombstones()
    if not _may_upgrade(group, context.settings):
        raise GroupIdNotFound(f"the group {group.group_id!r} is not a consumer group, and may not become one")
    try:
        members = [_upgraded_member(member, group, context) for member in group.members]
    except Unreadable as error:
        raise GroupIdNotFound(f"the group {group.group_id!r} is not a consumer group: {error}") from None
    group_id, epoch = group.group_id, group.generation_id
    return [
        *group.tombstones(),
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, epoch, 0),
        *(target_member_record(group_id, member.member_id, member.assigned) for member in members),
        target_record(group_id, epoch, 0),
        *(current_record(group_id, member) for member in members),
    ]


def _may_upgrade(group: ClassicGroup, settings: Settings) -> bool:
    return (
        settings.str("group.consumer.migration.policy").lower() in _UPGRADES
        and group.protocol_type == CONSUMER
        and len(group.members) <= settings.int("group.consumer.max.size")
    )


def _upgraded_member(member: Member, group: ClassicGroup, context: GroupContext) -> ConsumerMember:
    subscription = read_subscription(member.protocols[0][1])
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topic_names,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=by_ids(read_assignment(member.assignment), context.topics),
    )


def should_downgrade(group: ConsumerGroup, settings: Settings) -> bool:
    members = group.state.members.values()
    return (
        bool(members)
        and all(member.classic is not None for member in members)
        and settings.str("group.consumer.migration.policy").lower() in _DOWNGRADES
        and len(members) <= settings.int("group.max.size")
    )


def downgraded(group: ConsumerGroup, context: GroupContext) -> list[KeyValue]:
    """What makes a group with members of the classic protocol alone a classic group."""
    members = [(member, member.classic) for member in group.state.members.values() if member.classic is not None]
    protocol_name = _common_protocol([classic for _, classic in members])
    value = encode_value(
        RecordType.GROUP_METADATA,
        protocol_type=CONSUMER,
        generation=group.state.epoch,
        protocol=protocol_name,
        leader=members[0][0].member_id,
        current_state_timestamp=context.clock.wall_ms(),
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": classic.session_timeout_ms,
                "subscription": dict(classic.protocols)[protocol_name],
                "assignment": _assignment_of(member.assigned, dict(classic.protocols), protocol_name, context),
            }
            for member, classic in members
        ],
    )
    return [*group.tombstones(), (encode_key(RecordType.GROUP_METADATA, group=group.group_id), value)]


def _common_protocol(sides: list[ClassicSide]) -> str:
    """The first of the first member's that all others have; there is one, or they had not been let in."""
    others = [dict(side.protocols) for side in sides[1:]]
    return next(name for name, _ in sides[0].protocols if all(name in other for other in others))


def _assignment_of(
    assigned: Assignment, protocols: Mapping[str, bytes], protocol_name: str, context: GroupContext
) -> bytes:
    return write_assignment(version_of(protocols[protocol_name]), by_names(assigned, context.topics))
