"""Fetches record batches as the brokers store them, also control batches, which consumers do not see.

There is no state per partition: a caller gives the offsets, and gets the batches behind them. A request has no fetch
session, waits only if the caller says so, and uses connections of its own, so that a tail that waits delays no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.consumer.fetch_requests import FetchLimits, highest_version, request_fields
from headrace.client.consumer.fetch_session import CLOSING_EPOCH, NO_SESSION, PartitionFetch, SessionRequest
from headrace.client.errors import BrokerUnreachable, ErrorCode, HeadraceError, KafkaTimeout, error_for, is_retriable
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api
from headrace.protocol.records import BatchHeader, iter_headers
from headrace.protocol.wire.consumer_fetch import FetchAnswer, PartitionAnswer, read_answer
from headrace.runtime.clock import Clock

_ATTEMPTS = 6
_PAUSE_SECONDS = 0.2
_MISSING = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id)


class Fetched(NamedTuple):
    """The answer for one partition. ``records`` are whole batches, of which the last one may be cut."""

    records: memoryview
    high_watermark: int
    log_start_offset: int

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        for at, header in iter_headers(self.records):
            yield header, self.records[at : at + header.size_bytes]


class Fetching:
    """Fetches with the rights of one visitor."""

    def __init__(self, clients: Mapping[str, object], clock: Clock | None = None) -> None:
        """
        :param clients: the options of the admin client.
        """
        options = {"enable.metrics.push": False, "client.id": "headrace-console-records", **clients}
        self._cluster = Cluster(AdminConfig.load(options), clock=clock, may_create_topics=False)

    async def close(self) -> None:
        await self._cluster.close()

    async def fetch(
        self, positions: Mapping[TopicPartition, int], *, partition_bytes: int, max_bytes: int, wait_ms: int = 0
    ) -> dict[TopicPartition, Fetched]:
        """Returns the batches at the positions. A leader that moves is looked up again.

        :param partition_bytes: about how many bytes of each partition; at least one batch is returned.
        :param wait_ms: how long the brokers wait for a record.
        :raises HeadraceError: if a partition cannot be fetched.
        """
        limits = FetchLimits(wait_ms, 1, max_bytes)
        for attempt in range(_ATTEMPTS):
            try:
                return await self._attempt(positions, partition_bytes, limits, f"records-{wait_ms > 0}")
            except HeadraceError as error:
                if not _may_pass(error, attempt) or attempt == _ATTEMPTS - 1:
                    raise
            # The topic may have been made anew, with more partitions or another id.
            await self._cluster.refresh({at.topic for at in positions}, create=False)
            await asyncio.sleep(_PAUSE_SECONDS * attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self, positions: Mapping[TopicPartition, int], partition_bytes: int, limits: FetchLimits, purpose: str
    ) -> dict[TopicPartition, Fetched]:
        for topic in {at.topic for at in positions}:
            await self._cluster.partitions_of(topic, create=False)
        by_leader: dict[int, dict[TopicPartition, PartitionFetch]] = {}
        for at, offset in positions.items():
            info = self._cluster.metadata.partition(*at)
            if info is None or info.leader_id < 0:
                raise self._cluster.why_no_leader(*at)
            wanted = PartitionFetch(self._cluster.metadata.topic_id(at.topic), offset, max_bytes=partition_bytes)
            by_leader.setdefault(info.leader_id, {})[at] = wanted
        answers = await asyncio.gather(*(self._ask(*each, limits, purpose) for each in by_leader.items()))
        found: dict[TopicPartition, Fetched] = {}
        for answer in answers:
            for at, partition in answer.partitions:
                found[at] = _checked(at, partition)
        return found

    async def _ask(
        self, node_id: int, wanted: dict[TopicPartition, PartitionFetch], limits: FetchLimits, purpose: str
    ) -> FetchAnswer:
        request = SessionRequest(NO_SESSION, CLOSING_EPOCH, wanted, {}, wanted)
        connection = await self._cluster.connection(node_id, purpose=purpose)
        version = connection.version_of(Api.FETCH, highest_version(request))
        fields: dict[str, Any] = request_fields(request, limits)
        frame = await connection.ask_raw(Api.FETCH, version=version, **fields)
        asked: list[tuple[TopicPartition, UUID | None]] = [(at, each.topic_id) for at, each in wanted.items()]
        answer = read_answer(frame, version, asked)
        if answer.error is not ErrorCode.none:
            raise error_for(answer.error, f"Fetch at {connection.address}")
        return answer


def _checked(at: TopicPartition, answer: PartitionAnswer) -> Fetched:
    if answer.error is not ErrorCode.none:
        raise error_for(answer.error, f"the records of {at}")
    return Fetched(answer.records, answer.high_watermark, answer.log_start_offset)


def _may_pass(error: HeadraceError, attempt: int) -> bool:
    """Whether another attempt may succeed. What is missing is looked up once more, but nobody waits for it."""
    code = getattr(error, "code", None)
    if code in _MISSING:
        return attempt == 0
    return isinstance(error, BrokerUnreachable | KafkaTimeout) or (code is not None and is_retriable(code))
