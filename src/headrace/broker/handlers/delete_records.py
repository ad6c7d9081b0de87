"""DeleteRecords (key 21): moves a partition's start forward; what is below is gone for every reader.

Speaks v0 to v2. Offset -1 means the high watermark. With one replica the new start holds at once; with more the answer
waits until all of them that live have it, or the request's timeout has passed.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    from headrace.replication.partitions import Partitions
    from headrace.runtime.purgatory import Purgatory

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(request: Request, partitions: Partitions, delayed_delete_records: Purgatory[tuple[str, int]]) -> Reply:
    waits: list[_Wait] = []

    async def delete(topic: Any) -> dict[str, object]:
        answers = request.collect(topic.partitions, "topics", "partitions")
        async for wanted in request.slices.over(topic.partitions):
            waits_before = len(waits)
            answers.add(_delete(partitions, topic.name, wanted, waits), may_change=len(waits) > waits_before)
        return {"name": topic.name, "partitions": answers}

    topics = request.collect(request.body.topics, "topics")
    async for topic in request.slices.over(request.body.topics):
        waits_before = len(waits)
        topics.add(await delete(topic), may_change=len(waits) > waits_before)
    if waits:
        waiting = _DelayedDelete(waits, get_running_loop().create_future())
        keys = [(wait.partition.log.topic, wait.partition.log.partition) for wait in waits]
        timeout_ms = milliseconds(request.body.timeout)
        if not delayed_delete_records.try_complete_else_watch(waiting, keys, timeout_ms):
            await waiting.done
    return {"topics": topics}


class _Wait(NamedTuple):
    partition: Partition
    to_offset: int
    answer: dict[str, object]


def _delete(partitions: Partitions, topic: str, wanted: Any, waits: list[_Wait]) -> dict[str, object]:
    with code_for_errors(partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK) as answer:
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"records of {topic} are not deleted by clients")
        partition = partitions.leader(topic, wanted.partition_index)
        if not partition.log.config.is_deleted:
            raise PolicyViolation(f"{topic} is compacted only; deleting records needs cleanup.policy=delete")
        to_offset = partition.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
        if to_offset < 0:
            raise OffsetOutOfRange(f"offset {to_offset} is below every record")
        partition.advance_log_start(to_offset)
        answer["low_watermark"] = partition.low_watermark
        if partition.low_watermark < to_offset:
            waits.append(_Wait(partition, to_offset, answer))
    return answer


class _DelayedDelete(DelayedOperation):
    """Waits until all replicas have moved their starts."""

    def __init__(self, waits: list[_Wait], done: Future[None]) -> None:
        self._waits = waits
        self.done = done

    def try_complete(self) -> bool:
        self._waits = [wait for wait in self._waits if not self._is_done(wait)]
        return not self._waits and self.force_complete()

    def _is_done(self, wait: _Wait) -> bool:
        try:
            wait.answer["low_watermark"] = low_watermark = wait.partition.low_watermark
        except KafkaError as error:
            wait.answer.update(error_code=error.code, low_watermark=_NO_LOW_WATERMARK)
            return True
        return low_watermark >= wait.to_offset

    def on_complete(self) -> None:
        for wait in self._waits:
            wait.answer["error_code"] = ErrorCode.request_timed_out
        if not self.done.done():
            self.done.set_result(None)
