"""Converts a classic group to its record of ``__consumer_offsets``, and back.

The record's key is the group's id. The coordinator writes the record when the group has become Stable or Empty. It does
not write a group in the middle of a rebalance. So a coordinator that loads the log finds the last complete generation.
Members of a later generation join again as soon as they receive an error, or learn of the rebalance.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from headrace.groups.classic.members import ClassicMember
from headrace.groups.classic.metadata import ClassicGroupMetadata
from headrace.groups.classic.states import ClassicGroupState
from headrace.protocol.internal_records import RecordType, encode_key, encode_value
from headrace.replication.journal import KeyValue

_NOT_GIVEN = -1


def tombstone(group_id: str) -> KeyValue:
    """The record that deletes a group."""
    return encode_key(RecordType.GROUP_METADATA, group=group_id), None


def group_record(group: ClassicGroupMetadata, assignments: Mapping[str, bytes]) -> KeyValue:
    """The record of a group whose members have these assignments."""
    return metadata_record(
        group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.members.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=[
            member_fields(
                member,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members
        ],
    )


def metadata_record(group_id: str, **fields: object) -> KeyValue:
    """The record of a group.

    :param fields: as the record's value has them; ``members`` from :func:`member_fields`.
    """
    return encode_key(RecordType.GROUP_METADATA, group=group_id), encode_value(RecordType.GROUP_METADATA, **fields)


class RecordedMember(Protocol):
    """The attributes that members of classic groups and of consumer groups have in common."""

    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...


def member_fields(
    member: RecordedMember, *, session_timeout_ms: int, subscription: bytes, assignment: bytes
) -> dict[str, object]:
    """A member, as the record of its group has it."""
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout_ms,
        "session_timeout": session_timeout_ms,
        "subscription": subscription,
        "assignment": assignment,
    }


def metadata_from_record(group_id: str, value: Any) -> ClassicGroupMetadata:
    """The group that a record's value describes: Stable if it has members, else Empty."""
    group = ClassicGroupMetadata(group_id, value.current_state_timestamp)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for recorded in value.members:
        group.members.add(_member_from_record(recorded, value.protocol))
    group.members.leader_id = value.leader if len(group.members) else None
    group.state = ClassicGroupState.STABLE if len(group.members) else ClassicGroupState.EMPTY
    group.read_subscriptions()
    return group


def _member_from_record(recorded: Any, protocol_name: str | None) -> ClassicMember:
    """``recorded`` is a member in a record's value, in any version of the value."""
    has_timeout = recorded.rebalance_timeout != _NOT_GIVEN
    return ClassicMember(
        member_id=recorded.member_id,
        instance_id=recorded.group_instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        session_timeout_ms=recorded.session_timeout,
        rebalance_timeout_ms=recorded.rebalance_timeout if has_timeout else recorded.session_timeout,
        protocols=((protocol_name or "", bytes(recorded.subscription)),),
        assignment=bytes(recorded.assignment),
    )
