"""Builds the records of a group of the consumer protocol, in Kafka's layouts.

======================================  ==============================================================================
ConsumerGroupMetadata                   the group's epoch, and a hash of the topics that its members subscribe to
ConsumerGroupMemberMetadata             the description that a member sends of itself
ConsumerGroupTargetAssignmentMetadata   the group epoch of the target assignment, and when the assignment was computed
ConsumerGroupTargetAssignmentMember     the partitions that the target assignment gives to a member
ConsumerGroupCurrentMemberAssignment    a member's progress towards the target assignment
ConsumerGroupRegularExpression          the topics that a regular expression matched when it was last resolved
======================================  ==============================================================================

The tombstones of a member or a group come in the order in which Kafka expects them: a member's progress, its target
assignment, then its description; and all members before their group.
"""

from collections.abc import Iterable
from hashlib import blake2b

from headrace.groups.consumer.assignment import Assignment, to_wire
from headrace.groups.consumer.member import ConsumerMember
from headrace.groups.context import KnownTopic
from headrace.protocol.internal_records import RecordType, encode_key, encode_value
from headrace.replication.journal import KeyValue

_EPOCH = RecordType.CONSUMER_GROUP_METADATA
_MEMBER = RecordType.CONSUMER_GROUP_MEMBER_METADATA
_TARGET = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
_TARGET_MEMBER = RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
_CURRENT = RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
_REGEX = RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION

#: All types of records that describe a group. Kafka 4.1 and later write one of them only as tombstones.
RECORD_TYPES = frozenset(
    (_EPOCH, RecordType.CONSUMER_GROUP_PARTITION_METADATA, _MEMBER, _TARGET, _TARGET_MEMBER, _CURRENT, _REGEX)
)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    """The group epoch, and the hash of the subscribed topics."""
    return encode_key(_EPOCH, group_id=group_id), encode_value(_EPOCH, epoch=epoch, metadata_hash=metadata_hash)


def member_record(group_id: str, member: ConsumerMember) -> KeyValue:
    """A member's description."""
    classic = member.classic_metadata
    value = encode_value(
        _MEMBER,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [{"name": name, "metadata": metadata} for name, metadata in classic.protocols],
        },
    )
    return encode_key(_MEMBER, group_id=group_id, member_id=member.member_id), value


def target_record(group_id: str, epoch: int, made_at_ms: int) -> KeyValue:
    """The group epoch of the target assignment, and when the assignment was computed."""
    value = encode_value(_TARGET, assignment_epoch=epoch, assignment_timestamp=made_at_ms)
    return encode_key(_TARGET, group_id=group_id), value


def target_member_record(group_id: str, member_id: str, assignment: Assignment) -> KeyValue:
    """The target assignment of one member."""
    value = encode_value(_TARGET_MEMBER, topic_partitions=to_wire(assignment))
    return encode_key(_TARGET_MEMBER, group_id=group_id, member_id=member_id), value


def progress_record(group_id: str, member: ConsumerMember) -> KeyValue:
    """A member's progress towards the target assignment."""
    value = encode_value(
        _CURRENT,
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member, member.assigned),
        partitions_pending_revocation=_with_epochs(member, member.pending_revocation),
    )
    return encode_key(_CURRENT, group_id=group_id, member_id=member.member_id), value


def _with_epochs(member: ConsumerMember, assignment: Assignment) -> list[dict[str, object]]:
    return [
        {
            "topic_id": topic,
            "partitions": (partitions := sorted(assignment[topic])),
            "assignment_epochs": [member.assigned_at(topic, partition) for partition in partitions],
        }
        for topic in sorted(assignment)
    ]


def regex_record(group_id: str, regex: str, topics: Iterable[str], version: int, now_ms: int) -> KeyValue:
    """The topics that a regular expression matches, at a version of the cluster's metadata."""
    value = encode_value(_REGEX, topics=sorted(topics), version=version, timestamp=now_ms)
    return encode_key(_REGEX, group_id=group_id, regular_expression=regex), value


def regex_tombstone(group_id: str, regex: str) -> KeyValue:
    return encode_key(_REGEX, group_id=group_id, regular_expression=regex), None


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    return [
        (encode_key(record_type, group_id=group_id, member_id=member_id), None)
        for record_type in (_CURRENT, _TARGET_MEMBER, _MEMBER)
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[KeyValue]:
    return [
        *(record for member_id in member_ids for record in member_tombstones(group_id, member_id)),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        (encode_key(_TARGET, group_id=group_id), None),
        (encode_key(_EPOCH, group_id=group_id), None),
    ]


def hash_of_topics(topics: Iterable[KnownTopic]) -> int:
    """A hash that differs whenever the topics differ; 0 for no topics.

    Kafka computes another hash. So when a group moves between Kafka and Headrace, the next coordinator finds a
    difference and assigns the partitions again, once.
    """
    digest = blake2b(digest_size=8)
    is_empty = True
    for topic in sorted(topics, key=lambda each: each.name):
        is_empty = False
        racks = [sorted(each) for each in topic.racks]
        digest.update(repr((topic.name, topic.topic_id.bytes, topic.partition_count, racks)).encode())
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)
