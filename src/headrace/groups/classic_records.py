"""A classic group as a record of ``__consumer_offsets``, and back.

The record is written when a group has become Stable or Empty; its key is the group's name. A group between two
rebalances is not written: whoever loads the log finds its last settled generation, and its members join anew when they
find that they are not known, or that a rebalance is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.groups.members import Member
from headrace.protocol.internal_records import RecordType, encode_key, encode_value
from headrace.replication.journal import KeyValue

if TYPE_CHECKING:
    from headrace.groups.rebalance import Rebalancing

_NOT_GIVEN = -1


def tombstone(group_id: str) -> KeyValue:
    return encode_key(RecordType.GROUP_METADATA, group=group_id), None


def group_record(group: Rebalancing, assignments: Mapping[str, bytes]) -> KeyValue:
    """The group as it is, with what its members were assigned."""
    value = encode_value(
        RecordType.GROUP_METADATA,
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.members.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.metadata(group.protocol_name),
                "assignment": assignments.get(member.member_id, b""),
            }
            for member in group.members
        ],
    )
    return encode_key(RecordType.GROUP_METADATA, group=group.group_id), value


def restored_member(recorded: Any, protocol_name: str | None) -> Member:
    """``recorded`` is a member of a record's value, in any version."""
    has_timeout = recorded.rebalance_timeout != _NOT_GIVEN
    return Member(
        member_id=recorded.member_id,
        instance_id=recorded.group_instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        session_timeout_ms=recorded.session_timeout,
        rebalance_timeout_ms=recorded.rebalance_timeout if has_timeout else recorded.session_timeout,
        protocols=((protocol_name or "", bytes(recorded.subscription)),),
        assignment=bytes(recorded.assignment),
    )
