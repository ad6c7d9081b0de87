"""Values that the clients take and give."""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from headrace.protocol.kio import ErrorCode
from headrace.protocol.record_body import Headers
from headrace.protocol.topic_partition import TopicPartition as TopicPartition  # the alias exports it


class OffsetAndMetadata(NamedTuple):
    """A position to commit, with a text of the user's own and the epoch of the leader that it was read from."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a record went. The offset is -1 if the broker did not say: with acks=0, or for a record it had already.

    ``timestamp_ms`` is the record's own, or the broker's where the topic has LogAppendTime; -1 where it is not known.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's place in its group, for a transaction that commits its offsets: ``consumer.group_metadata()``."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Node(NamedTuple):
    """A broker. Ids below 0 are bootstrap servers of which only the address is known."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        name = f"{self.host}:{self.port}"
        return name if self.id < 0 else f"{name} (broker {self.id})"


class PartitionInfo(NamedTuple):
    """A partition as the cluster's metadata has it; replicas are broker ids, ``leader_id`` -1 is none."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.none


class TopicInfo(NamedTuple):
    name: str
    #: None from brokers that give topics no id.
    id: UUID | None
    partitions: tuple[PartitionInfo, ...]
    is_internal: bool = False
    error: ErrorCode = ErrorCode.none


class TimestampType(IntEnum):
    """Whose clock a record's timestamp is of: its producer's or the broker's (``message.timestamp.type``)."""

    create_time = 0
    log_append_time = 1


class ConsumedRecord(NamedTuple):
    """A record as a consumer hands it out. Made in bulk by ``record_decoding.py``, which knows the order of fields."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    leader_epoch: int = -1
