"""ListOffsets (key 2): where a partition begins, ends, or stood at a given time.

Speaks v1 to v11. A time finds the first record at or after it; -1 the end (the last stable offset for read_committed),
-2 the start, -3 the record with the largest timestamp (KIP-734). Nothing is tiered: the earliest local offset (-4) is
the start, and there is no last tiered one (-5) and no earliest pending upload (-6). A special value in a version that
came before it is UNSUPPORTED_VERSION. A partition that a request names twice is answered once, with INVALID_REQUEST.

The leader answers, or any replica where a tool asks as replica -2. A new leader that does not know yet how far its log
is committed says so (KIP-207). To a follower the end is that of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.network.request import Reply, Request
from headrace.broker.network.slices import Answers
from headrace.log.partition_log import TimestampAndOffset
from headrace.protocol.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
    code_for_errors,
)
from headrace.replication.partition import ANY_EPOCH, Isolation, Partition

if TYPE_CHECKING:
    from headrace.replication.partitions import Partitions

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: The first version in which each special value means something.
_SINCE = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
_CLIENT, _DEBUGGING = -1, -2
#: Before, clients did not know OFFSET_NOT_AVAILABLE.
_NOT_AVAILABLE_FROM = 5
_NOTHING = TimestampAndOffset(offset=-1, timestamp_ms=-1, leader_epoch=-1)


async def handle(request: Request, partitions: Partitions) -> Reply:
    asking = _Asking(
        request.version, Isolation(getattr(request.body, "isolation_level", 0)), int(request.body.replica_id)
    )

    async def describe(topic: Any) -> dict[str, object]:
        return {"name": topic.name, "partitions": await _answers(request, partitions, topic, asking)}

    return {"topics": await request.awaited_answers(request.body.topics, describe, "topics")}


class _Asking(NamedTuple):
    version: int
    isolation: Isolation
    #: -1: a client; -2: a tool that wants to know of this very replica; else a follower.
    replica_id: int


async def _answers(request: Request, partitions: Partitions, topic: Any, asking: _Asking) -> Answers | list[Any]:
    repeated = await request.slices.repeated(topic.partitions, lambda wanted: wanted.partition_index)

    def answer(wanted: Any) -> dict[str, object] | None:
        index = wanted.partition_index
        if repeated.was_met_before(index):
            return None
        return _answer(partitions, topic.name, wanted, asking, is_twice=index in repeated)

    return await request.answers(topic.partitions, answer, "topics", "partitions")


def _answer(partitions: Partitions, topic: str, wanted: Any, asking: _Asking, *, is_twice: bool) -> dict[str, object]:
    version = asking.version
    with code_for_errors(partition_index=wanted.partition_index) as answer:
        if is_twice:
            raise InvalidRequest("the partition is named twice in the request")
        if wanted.timestamp < 0 and version < _SINCE.get(wanted.timestamp, version + 1):
            raise UnsupportedVersion(f"{wanted.timestamp} is neither a time nor a special value of v{version}")
        epoch = getattr(wanted, "current_leader_epoch", ANY_EPOCH)
        find = partitions.replica if asking.replica_id == _DEBUGGING else partitions.leader
        partition = find(topic, wanted.partition_index, epoch)
        found = _find(partition, wanted.timestamp, asking)
        answer.update(timestamp=found.timestamp_ms, offset=found.offset, leader_epoch=found.leader_epoch)
    return answer


def _find(partition: Partition, timestamp: int, asking: _Asking) -> TimestampAndOffset:
    log = partition.log
    if timestamp == _LATEST:
        return TimestampAndOffset(_end(partition, asking), -1, partition.leader_epoch)
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return TimestampAndOffset(log.log_start_offset, -1, partition.leader_epoch)
    if timestamp == _MAX_TIMESTAMP:
        return log.locate_max_timestamp() or _NOTHING
    if timestamp in (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    found = log.locate_time(timestamp, until_offset=partition.visible_end(asking.isolation))
    if found is None and asking.replica_id == _CLIENT:
        _check_committed_is_known(partition, asking.version)
    return found or _NOTHING


def _end(partition: Partition, asking: _Asking) -> int:
    if asking.replica_id >= 0:
        return partition.log.next_offset
    if asking.replica_id == _CLIENT:
        _check_committed_is_known(partition, asking.version)
    return partition.visible_end(asking.isolation)


def _check_committed_is_known(partition: Partition, version: int) -> None:
    try:
        partition.check_committed_is_known()
    except OffsetNotAvailable as error:
        if version < _NOT_AVAILABLE_FROM:
            raise LeaderNotAvailable(str(error)) from None
        raise
