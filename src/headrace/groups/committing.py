"""Decides which clients may commit and read offsets, and commits them. The handlers translate from and to the protocol.

A client that is not a member (generation -1, no member id) may commit for a group without members, or for a group that
does not exist. The commit then creates a group that has only offsets. A member must belong to the group and be in its
present generation. A commit within a transaction follows the same rules, but is also allowed while the members wait for
their new assignment.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.groups.committed_offsets import NO_EXPIRY, TopicCommit
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.group import NO_GENERATION, UNKNOWN_MEMBER
from headrace.groups.shard import GroupShard
from headrace.protocol.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    StaleMemberEpoch,
    UnsupportedVersion,
    error_code_of,
)

#: From this version on, an OffsetCommit may be answered with the errors of the consumer protocol (KIP-848).
_CONSUMER_PROTOCOL_ERRORS = 9

#: Errors of the coordinator's own log are sent to clients as errors of the coordinator.
_CLIENT_CODES = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}


class Committer(NamedTuple):
    """The client that commits, as its request describes it."""

    group_id: str
    member_id: str = UNKNOWN_MEMBER
    generation_or_epoch: int = NO_GENERATION
    instance_id: str | None = None


def commit(
    shard: GroupShard,
    committer: Committer,
    commits: Sequence[TopicCommit],
    *,
    version: int,
    expire_timestamp_ms: int = NO_EXPIRY,
) -> None:
    """Commits offsets for OffsetCommit.

    :param version: the version of the request.
    :raises KafkaError: if the client may not commit, or the records could not be written. Then nothing is committed.
    """
    group = shard.group(committer.group_id)
    knows_errors = version >= _CONSUMER_PROTOCOL_ERRORS
    try:
        _check(shard, committer, GroupIdNotFound if knows_errors else IllegalGeneration)
    except StaleMemberEpoch as error:
        if not knows_errors:
            raise UnsupportedVersion(str(error)) from None
        if not isinstance(group, ConsumerGroup):
            raise
        if not group.may_commit_at_older_epoch(committer.member_id, committer.generation_or_epoch, commits):
            raise
    if not knows_errors and isinstance(group, ConsumerGroup) and group.uses_consumer_protocol(committer.member_id):
        raise UnsupportedVersion(
            f"a member of the consumer protocol must commit with OffsetCommit version {_CONSUMER_PROTOCOL_ERRORS} or "
            f"later, not {version}: earlier versions do not have the protocol's errors"
        )
    records = shard.offsets.commit_records(committer.group_id, commits, expire_timestamp_ms=expire_timestamp_ms)
    shard.append(records)
    shard.offsets.apply_commits(committer.group_id, records)


def commit_in_transaction(
    shard: GroupShard, committer: Committer, commits: Iterable[TopicCommit], producer_id: int, producer_epoch: int
) -> None:
    """Commits offsets for TxnOffsetCommit. They count when the producer's transaction is committed.

    :raises KafkaError: if the client may not commit, or the records could not be written. Then nothing is committed.
    """
    try:
        _check(shard, committer, IllegalGeneration, is_transactional=True)
    except StaleMemberEpoch as error:
        raise IllegalGeneration(str(error)) from None
    records = shard.offsets.commit_records(committer.group_id, commits)
    shard.write(records, producer_id=producer_id, producer_epoch=producer_epoch)


def _check(
    shard: GroupShard, committer: Committer, no_group_error: type[KafkaError], *, is_transactional: bool = False
) -> None:
    group = shard.group(committer.group_id)
    if group is not None:
        group.check_commit(
            committer.member_id,
            committer.generation_or_epoch,
            committer.instance_id,
            is_transactional=is_transactional,
        )
    elif committer.generation_or_epoch >= 0:
        raise no_group_error(
            f"there is no group {committer.group_id!r}, so it has no generation {committer.generation_or_epoch}"
        )


def client_error_code(error: Exception) -> ErrorCode:
    """The code that a client of the coordinator receives for an error."""
    code = error_code_of(error)
    return _CLIENT_CODES.get(code, code)


def expire(shard: GroupShard) -> int:
    """Deletes the expired offsets of a shard, and groups that have neither members nor offsets left.

    :return: the number of deleted offsets.
    """
    offsets, now_ms = shard.offsets, shard.context.clock.wall_ms()
    count = 0
    for group_id, group in list(shard.groups.items()):
        records = offsets.expired_records(group, now_ms)
        count += len(records)
        if len(records) == offsets.count_of(group_id) and group.is_empty and not offsets.has_pending(group_id):
            shard.remove_group(group_id)
        else:
            shard.write(records)
    return count
