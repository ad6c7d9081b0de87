"""ListOffsets (key 2): the offset at which a partition begins, ends, or has a given time.

Speaks v1 to v11. A time finds the first record at or after it. Special values: -1 is the end (for read_committed the
last stable offset), -2 the start, -3 the record with the largest timestamp (KIP-734). There is no tiered storage: the
earliest local offset (-4) is the start, and the last tiered offset (-5) and the earliest pending upload (-6) are not
found. A special value in a version that does not have it is UNSUPPORTED_VERSION. If a request names a partition twice,
the partition is answered once, with INVALID_REQUEST.

The leader answers; if a tool asks as replica -2, every replica answers. A new leader that does not know its high
watermark yet answers OFFSET_NOT_AVAILABLE (KIP-207). For a follower the end is the end of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headrace.broker.authorization.checks import allowed_topics
from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.log.appending import record_count_of, takes_long
from headrace.log.lookups import BatchSearch, Search
from headrace.log.partition_log import PartitionLog, TimestampAndOffset
from headrace.protocol.errors import (
    ErrorCode,
    InvalidRequest,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
    code_for_errors,
)
from headrace.replication.partition import ANY_EPOCH, Isolation, Partition
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.broker.services import ReadRecords
    from headrace.replication.partitions import Partitions

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: The first version that has each special value.
_SINCE = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_CLIENT, _DEBUGGING = -1, -2
#: Older clients do not know OFFSET_NOT_AVAILABLE.
_NOT_AVAILABLE_SINCE = 5
_NOT_FOUND = TimestampAndOffset(offset=-1, timestamp_ms=-1, leader_epoch=-1)


async def handle(request: Request, authorizer: Authorizer, partitions: Partitions, read_records: ReadRecords) -> Reply:
    isolation = Isolation(getattr(request.body, "isolation_level", 0))
    query = _Query(request.version, isolation, int(request.body.replica_id), read_records)

    may_describe = allowed_topics(authorizer, request.connection, AclOperation.DESCRIBE)

    async def describe(topic: Any) -> dict[str, object]:
        if not may_describe(topic.name):
            return {"name": topic.name, "partitions": await _refusals(request, topic)}
        return {"name": topic.name, "partitions": await _answers(request, partitions, topic, query)}

    return {"topics": await request.awaited_answers(request.body.topics, describe, "topics")}


class _Query(NamedTuple):
    """The part of a request that applies to all of its partitions."""

    version: int
    isolation: Isolation
    #: -1: a client; -2: a tool that asks this replica, leader or not; otherwise a follower.
    replica_id: int
    read_records: ReadRecords


async def _refusals(request: Request, topic: Any) -> Answers | list[Any]:
    code = ErrorCode.topic_authorization_failed
    return await request.answers(
        topic.partitions,
        lambda wanted: {"partition_index": wanted.partition_index, "error_code": code},
        "topics",
        "partitions",
    )


async def _answers(request: Request, partitions: Partitions, topic: Any, query: _Query) -> Answers | list[Any]:
    repeated = await request.slices.repeated(topic.partitions, lambda wanted: wanted.partition_index)

    async def answer(wanted: Any) -> dict[str, object] | None:
        index = wanted.partition_index
        if repeated.was_met_before(index):
            return None
        return await _answer(partitions, topic.name, wanted, query, is_twice=index in repeated)

    return await request.awaited_answers(topic.partitions, answer, "topics", "partitions")


async def _answer(
    partitions: Partitions, topic: str, wanted: Any, query: _Query, *, is_twice: bool
) -> dict[str, object]:
    version = query.version
    with code_for_errors(partition_index=wanted.partition_index) as answer:
        if is_twice:
            raise InvalidRequest("the request names the partition twice")
        if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, version + 1):
            raise UnsupportedVersion(
                f"{wanted.timestamp} is neither a time nor a special value of ListOffsets v{version}"
            )
        epoch = getattr(wanted, "current_leader_epoch", ANY_EPOCH)
        find = partitions.replica if query.replica_id == _DEBUGGING else partitions.leader
        partition = find(topic, wanted.partition_index, epoch)
        found = await _find(partition, wanted.timestamp, query)
        answer.update(timestamp=found.timestamp_ms, offset=found.offset, leader_epoch=found.leader_epoch)
    return answer


async def _find(partition: Partition, timestamp: int, query: _Query) -> TimestampAndOffset:
    log = partition.log
    if timestamp == _LATEST:
        return TimestampAndOffset(_end(partition, query), -1, partition.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampAndOffset(log.log_start_offset, -1, partition.leader_epoch)
    if timestamp == _MAX_TIMESTAMP:
        return await _run(log, log.search_max_timestamp(), query) or _NOT_FOUND
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND
    found = await _run(log, log.search_time(timestamp, until_offset=partition.visible_end(query.isolation)), query)
    if found is None and query.replica_id == _CLIENT:
        _check_high_watermark_is_known(partition, query.version)
    return found or _NOT_FOUND


async def _run(log: PartitionLog, search: Search, query: _Query) -> TimestampAndOffset | None:
    """Searches in a batch with many records on another thread, so that other requests do not wait."""
    found: TimestampAndOffset | None = None
    while True:
        try:
            batch = log.continue_search(search, found)
        except StopIteration as done:
            return cast(TimestampAndOffset | None, done.value)
        found = await _read(batch, query) if takes_long(batch.batch) else batch.run()


async def _read(search: BatchSearch, query: _Query) -> TimestampAndOffset | None:
    return await query.read_records(record_count_of(search.batch), search.run)


def _end(partition: Partition, query: _Query) -> int:
    if query.replica_id >= 0:
        return partition.log.next_offset
    if query.replica_id == _CLIENT:
        _check_high_watermark_is_known(partition, query.version)
    return partition.visible_end(query.isolation)


def _check_high_watermark_is_known(partition: Partition, version: int) -> None:
    try:
        partition.check_high_watermark_known()
    except OffsetNotAvailable as error:
        if version < _NOT_AVAILABLE_SINCE:
            raise LeaderNotAvailable(str(error)) from None
        raise
