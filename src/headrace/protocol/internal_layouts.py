"""Holds the fields of the records of the internal topics: one table per record type, for all its versions.

``__consumer_offsets`` stores the state of group coordinators, ``__transaction_state`` that of transaction coordinators.
The fields and their order are Kafka's. ``layouts.py`` turns a table into the classes that kio reads and
``wire/encoder.py`` writes.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import NamedTuple

from headrace.protocol.layouts import NEVER, Layout, Struct


class InternalTopic(StrEnum):
    CONSUMER_OFFSETS = "__consumer_offsets"
    TRANSACTION_STATE = "__transaction_state"

    #: An enum's own hash is a Python function, and a replay looks these up for every record.
    __hash__ = object.__hash__


class RecordType(Enum):
    """The type of a record: its topic, and the number with which its key begins."""

    LEGACY_OFFSET_COMMIT = InternalTopic.CONSUMER_OFFSETS, 0
    OFFSET_COMMIT = InternalTopic.CONSUMER_OFFSETS, 1
    GROUP_METADATA = InternalTopic.CONSUMER_OFFSETS, 2
    CONSUMER_GROUP_METADATA = InternalTopic.CONSUMER_OFFSETS, 3
    CONSUMER_GROUP_PARTITION_METADATA = InternalTopic.CONSUMER_OFFSETS, 4
    CONSUMER_GROUP_MEMBER_METADATA = InternalTopic.CONSUMER_OFFSETS, 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = InternalTopic.CONSUMER_OFFSETS, 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = InternalTopic.CONSUMER_OFFSETS, 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = InternalTopic.CONSUMER_OFFSETS, 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = InternalTopic.CONSUMER_OFFSETS, 16
    TRANSACTION = InternalTopic.TRANSACTION_STATE, 0

    __hash__ = object.__hash__

    @property
    def topic(self) -> InternalTopic:
        topic: InternalTopic = self.value[0]
        return topic

    @property
    def number(self) -> int:
        number: int = self.value[1]
        return number


class RecordLayout(NamedTuple):
    """The key of a record type, which has only one version, and its value."""

    key: Struct
    value: Struct
    #: The versions of the value.
    versions: range
    #: The first version with compact lengths and tagged fields.
    flexible_since: int
    #: The version that Kafka 4.3 writes.
    written_version: int


_GROUP_KEY = (Layout("group_id", "string"),)
_MEMBER_KEY = (*_GROUP_KEY, Layout("member_id", "string"))
_OFFSET_KEY = (Layout("group", "string"), Layout("topic", "string"), Layout("partition", "int32"))

_OFFSET_VALUE = Struct(
    "OffsetCommitValue",
    (
        Layout("offset", "int64"),
        Layout("leader_epoch", "int32", since=3, default=-1),
        Layout("metadata", "string"),
        Layout("commit_timestamp", "int64"),
        #: Only commits with their own retention time (OffsetCommit v2 to v4) need it. They are written in version 1.
        Layout("expire_timestamp", "int64", since=1, until=1, default=-1),
        Layout("topic_id", "uuid", since=4, tag=0, default=None),
    ),
)

_GROUP_VALUE = Struct(
    "GroupMetadataValue",
    (
        Layout("protocol_type", "string"),
        Layout("generation", "int32"),
        Layout("protocol", "string", is_nullable=True),
        Layout("leader", "string", is_nullable=True),
        Layout("current_state_timestamp", "int64", since=2, default=-1),
        Layout(
            "members",
            Struct(
                "MemberMetadata",
                (
                    Layout("member_id", "string"),
                    Layout("group_instance_id", "string", is_nullable=True, since=3, default=None),
                    Layout("client_id", "string"),
                    Layout("client_host", "string"),
                    Layout("rebalance_timeout", "int32", since=1, default=-1),
                    Layout("session_timeout", "int32"),
                    Layout("subscription", "bytes"),
                    Layout("assignment", "bytes"),
                ),
            ),
            is_array=True,
        ),
    ),
)

_CONSUMER_GROUP_VALUE = Struct(
    "ConsumerGroupMetadataValue",
    (Layout("epoch", "int32"), Layout("metadata_hash", "int64", tag=0, default=0)),
)

#: Kafka 4.1 and later write only tombstones of this type (KIP-1101).
_PARTITION_VALUE = Struct(
    "ConsumerGroupPartitionMetadataValue",
    (
        Layout(
            "topics",
            Struct(
                "TopicMetadata",
                (
                    Layout("topic_id", "uuid"),
                    Layout("topic_name", "string"),
                    Layout("num_partitions", "int32"),
                    Layout(
                        "partition_metadata",
                        Struct(
                            "PartitionMetadata",
                            (Layout("partition", "int32"), Layout("racks", "string", is_array=True)),
                        ),
                        is_array=True,
                    ),
                ),
            ),
            is_array=True,
        ),
    ),
)

_MEMBER_VALUE = Struct(
    "ConsumerGroupMemberMetadataValue",
    (
        Layout("instance_id", "string", is_nullable=True),
        Layout("rack_id", "string", is_nullable=True),
        Layout("client_id", "string"),
        Layout("client_host", "string"),
        Layout("subscribed_topic_names", "string", is_array=True),
        Layout("subscribed_topic_regex", "string", is_nullable=True),
        Layout("rebalance_timeout_ms", "int32", default=-1),
        Layout("server_assignor", "string", is_nullable=True),
        Layout(
            "classic_member_metadata",
            Struct(
                "ClassicMemberMetadata",
                (
                    Layout("session_timeout_ms", "int32"),
                    Layout(
                        "supported_protocols",
                        Struct("ClassicProtocol", (Layout("name", "string"), Layout("metadata", "bytes"))),
                        is_array=True,
                    ),
                ),
            ),
            is_nullable=True,
            tag=0,
            default=None,
        ),
    ),
)

_TARGET_VALUE = Struct(
    "ConsumerGroupTargetAssignmentMetadataValue",
    (Layout("assignment_epoch", "int32"), Layout("assignment_timestamp", "int64", tag=0, default=0)),
)

_TARGET_MEMBER_VALUE = Struct(
    "ConsumerGroupTargetAssignmentMemberValue",
    (
        Layout(
            "topic_partitions",
            Struct("TopicPartition", (Layout("topic_id", "uuid"), Layout("partitions", "int32", is_array=True))),
            is_array=True,
        ),
    ),
)

_OWNED = Struct(
    "TopicPartitions",
    (
        Layout("topic_id", "uuid"),
        Layout("partitions", "int32", is_array=True),
        Layout("assignment_epochs", "int32", is_array=True, is_nullable=True, tag=0, default=None),
    ),
)

_CURRENT_VALUE = Struct(
    "ConsumerGroupCurrentMemberAssignmentValue",
    (
        Layout("member_epoch", "int32"),
        Layout("previous_member_epoch", "int32"),
        Layout("state", "int8"),
        Layout("assigned_partitions", _OWNED, is_array=True),
        Layout("partitions_pending_revocation", _OWNED, is_array=True),
    ),
)

_REGEX_VALUE = Struct(
    "ConsumerGroupRegularExpressionValue",
    (Layout("topics", "string", is_array=True), Layout("version", "int64"), Layout("timestamp", "int64")),
)

_TRANSACTION_VALUE = Struct(
    "TransactionLogValue",
    (
        Layout("producer_id", "int64"),
        Layout("previous_producer_id", "int64", since=1, tag=0, default=-1),
        Layout("next_producer_id", "int64", since=1, tag=1, default=-1),
        Layout("producer_epoch", "int16"),
        Layout("next_producer_epoch", "int16", since=1, tag=3, default=-1),
        Layout("transaction_timeout_ms", "int32"),
        Layout("transaction_status", "int8"),
        Layout(
            "transaction_partitions",
            Struct("PartitionsSchema", (Layout("topic", "string"), Layout("partition_ids", "int32", is_array=True))),
            is_array=True,
            is_nullable=True,
        ),
        Layout("transaction_last_update_timestamp_ms", "int64"),
        Layout("transaction_start_timestamp_ms", "int64"),
        Layout("client_transaction_version", "int16", since=1, tag=2, default=0),
    ),
)


def _newer(key: tuple[Layout, ...], value: Struct) -> RecordLayout:
    """A record type of the new group protocol (KIP-848): it has one version, which is flexible; later fields get
    tags."""
    return RecordLayout(Struct(value.name.removesuffix("Value") + "Key", key), value, range(1), 0, 0)


LAYOUTS: Mapping[RecordType, RecordLayout] = {
    RecordType.LEGACY_OFFSET_COMMIT: RecordLayout(
        Struct("LegacyOffsetCommitKey", _OFFSET_KEY), _OFFSET_VALUE, range(1), NEVER, 0
    ),
    RecordType.OFFSET_COMMIT: RecordLayout(Struct("OffsetCommitKey", _OFFSET_KEY), _OFFSET_VALUE, range(5), 4, 4),
    RecordType.GROUP_METADATA: RecordLayout(
        Struct("GroupMetadataKey", (Layout("group", "string"),)), _GROUP_VALUE, range(5), 4, 3
    ),
    RecordType.CONSUMER_GROUP_METADATA: _newer(_GROUP_KEY, _CONSUMER_GROUP_VALUE),
    RecordType.CONSUMER_GROUP_PARTITION_METADATA: _newer(_GROUP_KEY, _PARTITION_VALUE),
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _newer(_MEMBER_KEY, _MEMBER_VALUE),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _newer(_GROUP_KEY, _TARGET_VALUE),
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _newer(_MEMBER_KEY, _TARGET_MEMBER_VALUE),
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _newer(_MEMBER_KEY, _CURRENT_VALUE),
    RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION: _newer(
        (*_GROUP_KEY, Layout("regular_expression", "string")), _REGEX_VALUE
    ),
    #: transaction.version=0 writes version 0; transaction.version=1 and 2 (the default, KIP-890) write version 1.
    RecordType.TRANSACTION: RecordLayout(
        Struct("TransactionLogKey", (Layout("transactional_id", "string"),)), _TRANSACTION_VALUE, range(2), 1, 1
    ),
}
