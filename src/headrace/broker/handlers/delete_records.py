"""DeleteRecords (key 21): moves the start of a partition forward. No reader sees the records before the start.

Speaks v0 to v2. Offset -1 means the high watermark. With one replica the answer comes at once. With several replicas
the answer comes when all live replicas have the new start, or when the request's timeout has passed.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.authorization.checks import allowed_topics
from headrace.broker.metadata_cache import INTERNAL_TOPICS
from headrace.broker.network.request import Reply, Request, milliseconds
from headrace.protocol.errors import (
    ErrorCode,
    InvalidTopic,
    KafkaError,
    OffsetOutOfRange,
    PolicyViolation,
    code_for_errors,
)
from headrace.replication.partition import Partition
from headrace.runtime.purgatory import DelayedOperation
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.broker.authorization.authorizer import Authorizer
    from headrace.replication.partitions import Partitions
    from headrace.runtime.purgatory import Purgatory

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(
    request: Request,
    authorizer: Authorizer,
    partitions: Partitions,
    delayed_delete_records: Purgatory[tuple[str, int]],
) -> Reply:
    pending: list[_PendingDelete] = []
    may_delete = allowed_topics(authorizer, request.connection, AclOperation.DELETE)

    async def delete(topic: Any) -> dict[str, object]:
        answers = request.collect(topic.partitions, "topics", "partitions")
        async for wanted in request.slices.over(topic.partitions):
            pending_before = len(pending)
            answer = (
                _delete(partitions, topic.name, wanted, pending)
                if may_delete(topic.name)
                else _refusal(wanted.partition_index)
            )
            answers.add(answer, may_change=len(pending) > pending_before)
        return {"name": topic.name, "partitions": answers}

    topics = request.collect(request.body.topics, "topics")
    async for topic in request.slices.over(request.body.topics):
        pending_before = len(pending)
        topics.add(await delete(topic), may_change=len(pending) > pending_before)
    if pending:
        waiting = _DelayedDelete(pending, get_running_loop().create_future())
        keys = [(one.partition.log.topic, one.partition.log.partition) for one in pending]
        timeout_ms = milliseconds(request.body.timeout)
        if not delayed_delete_records.try_complete_else_watch(waiting, keys, timeout_ms):
            await waiting.done
    return {"topics": topics}


class _PendingDelete(NamedTuple):
    """A partition whose replicas do not all have the new start yet, with its answer."""

    partition: Partition
    to_offset: int
    answer: dict[str, object]


def _refusal(index: int) -> dict[str, object]:
    return {
        "partition_index": index,
        "low_watermark": _NO_LOW_WATERMARK,
        "error_code": ErrorCode.topic_authorization_failed,
    }


def _delete(partitions: Partitions, topic: str, wanted: Any, pending: list[_PendingDelete]) -> dict[str, object]:
    with code_for_errors(partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK) as answer:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"clients may not delete records of the internal topic {topic}")
        partition = partitions.leader(topic, wanted.partition_index)
        if not partition.log.config.is_deleted:
            raise PolicyViolation(
                f"topic {topic} is compacted; set its cleanup.policy to delete to be able to delete records"
            )
        to_offset = partition.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
        if to_offset < 0:
            raise OffsetOutOfRange(f"offset {to_offset} is negative")
        partition.advance_log_start(to_offset)
        answer["low_watermark"] = partition.low_watermark
        if partition.low_watermark < to_offset:
            pending.append(_PendingDelete(partition, to_offset, answer))
    return answer


class _DelayedDelete(DelayedOperation):
    """Waits until all replicas have the new start."""

    def __init__(self, pending: list[_PendingDelete], done: Future[None]) -> None:
        self._pending = pending
        self.done = done

    def try_complete(self) -> bool:
        self._pending = [one for one in self._pending if not self._is_done(one)]
        return not self._pending and self.force_complete()

    def _is_done(self, one: _PendingDelete) -> bool:
        try:
            one.answer["low_watermark"] = low_watermark = one.partition.low_watermark
        except KafkaError as error:
            one.answer.update(error_code=error.code, low_watermark=_NO_LOW_WATERMARK)
            return True
        return low_watermark >= one.to_offset

    def on_complete(self) -> None:
        for one in self._pending:
            one.answer["error_code"] = ErrorCode.request_timed_out
        if not self.done.done():
            self.done.set_result(None)
