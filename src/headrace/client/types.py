"""Values that the clients take as arguments and return."""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.kio import ErrorCode
from headrace.protocol.record_body import Headers
from headrace.protocol.topic_partition import TopicPartition as TopicPartition  # the alias exports it


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, with a text of the user's own and the epoch of the leader that it was read from."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """The partition and offset of a record that was delivered.

    The offset is -1 if the broker did not return it: with ``acks=0``, or for a record that the broker had already.
    ``timestamp_ms`` is the record's own timestamp, or the broker's if the topic has LogAppendTime; -1 if not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's place in its group, for a transaction that commits its offsets (``consumer.group_metadata()``)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Node(NamedTuple):
    """A broker. A negative id is a bootstrap server of which only the address is known."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        name = f"{self.host}:{self.port}"
        return name if self.id < 0 else f"{name} (broker {self.id})"


class PartitionInfo(NamedTuple):
    """A partition in the cluster's metadata. Replicas are broker ids; a ``leader_id`` of -1 means no leader."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.none


class TopicInfo(NamedTuple):
    """A topic in the cluster's metadata."""

    name: str
    #: None if the broker does not support topic ids.
    id: UUID | None
    partitions: tuple[PartitionInfo, ...]
    is_internal: bool = False
    error: ErrorCode = ErrorCode.none


class TimestampType(IntEnum):
    """The source of a record's timestamp: the producer (create_time) or the broker (``message.timestamp.type``)."""

    create_time = 0
    log_append_time = 1


class ConsumedRecord(NamedTuple):
    """A record that a consumer returns. ``consumer/record_decoding.py`` depends on the order of the fields."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    leader_epoch: int = -1
