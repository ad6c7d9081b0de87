"""Who may commit and read offsets, and what is done for them. Handlers say it in the protocol's words.

Somebody who is no member of anything (generation -1, no member id) may commit for a group that has no members, or that
is not there: then it is made with the commit, and keeps offsets only. Members must be of the group, and of its present
generation. A commit of a transaction goes by the same rules, but is let through while partitions are being assigned.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.groups.consumer import ConsumerGroup
from headrace.groups.group import NO_GENERATION, UNKNOWN_MEMBER
from headrace.groups.offsets import NO_EXPIRY, TopicCommit
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

#: From this version of OffsetCommit on its errors are those of the new group protocol too (KIP-848).
_NEW_ERRORS = 9

#: What went wrong with our own log is, to a client, about the coordinator.
_TOLD_AS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}


class Committer(NamedTuple):
    """Who says that he may commit."""

    group_id: str
    member_id: str = UNKNOWN_MEMBER
    generation_or_epoch: int = NO_GENERATION
    instance_id: str | None = None


def commit(
    shard: GroupShard,
    who: Committer,
    commits: Sequence[TopicCommit],
    *,
    version: int,
    expire_timestamp_ms: int = NO_EXPIRY,
) -> None:
    """
    :raises KafkaError: if he may not, or it could not be written. Then nothing is committed.
    """
    group = shard.group(who.group_id)
    try:
        _check(shard, who, GroupIdNotFound if version >= _NEW_ERRORS else IllegalGeneration)
    except StaleMemberEpoch as error:
        if version < _NEW_ERRORS:
            raise UnsupportedVersion(str(error)) from None
        if not isinstance(group, ConsumerGroup):
            raise
        if not group.may_still_commit(who.member_id, who.generation_or_epoch, commits):
            raise
    if version < _NEW_ERRORS and isinstance(group, ConsumerGroup) and group.speaks_consumer_protocol(who.member_id):
        raise UnsupportedVersion("a client of that version cannot understand the errors of the consumer protocol")
    records = shard.offsets.commit_records(who.group_id, commits, expire_timestamp_ms=expire_timestamp_ms)
    shard.append(records)
    shard.offsets.apply_commits(who.group_id, records)


def commit_in_transaction(
    shard: GroupShard, who: Committer, commits: Iterable[TopicCommit], producer_id: int, producer_epoch: int
) -> None:
    """The same, to count when the transaction is committed.

    :raises KafkaError: if he may not, or it could not be written. Then nothing is committed.
    """
    try:
        _check(shard, who, IllegalGeneration, is_transactional=True)
    except StaleMemberEpoch as error:
        raise IllegalGeneration(str(error)) from None
    records = shard.offsets.commit_records(who.group_id, commits)
    shard.write(records, producer_id=producer_id, producer_epoch=producer_epoch)


def _check(shard: GroupShard, who: Committer, if_no_group: type[KafkaError], *, is_transactional: bool = False) -> None:
    group = shard.group(who.group_id)
    if group is not None:
        group.check_commit(who.member_id, who.generation_or_epoch, who.instance_id, is_transactional=is_transactional)
    elif who.generation_or_epoch >= 0:
        raise if_no_group(f"there is no group {who.group_id!r}")


def told_code(error: Exception) -> ErrorCode:
    """The code by which a client of the coordinator is told of an error."""
    code = error_code_of(error)
    return _TOLD_AS.get(code, code)


def expire(shard: GroupShard) -> int:
    """Takes out the offsets of a shard that were kept for long enough, and groups that have nothing left.

    :return: how many offsets were taken out.
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
