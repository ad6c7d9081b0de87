"""Looks up offsets by ListOffsets (v1 and higher): the first and the last of a partition, or the one at a time.

All leaders are asked at once. If the leader of a partition is not known, or has changed, the lookup tries again after a
pause, until the timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import (
    BrokerUnreachable,
    ErrorCode,
    HeadraceError,
    KafkaTimeout,
    UnknownTopic,
    error_for,
    is_retriable,
)
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import TopicPartition
from headrace.protocol.api import Api


class FoundOffset(NamedTuple):
    """An offset that was looked up. A negative offset means that no record is recent enough."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


class OffsetLookup:
    """Looks up offsets for one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        read_committed: bool = False,
        create: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """
        :param create: a lookup may create a missing topic, if the broker allows that.
        """
        self._cluster = cluster
        self._create = create
        self._read_committed = read_committed
        self._sleep = sleep
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)

    async def find(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset]:
        """Returns the offset of each partition's first record at or after a timestamp; -1 is the end, -2 the start.

        :raises UnknownTopic: if a topic or partition does not exist, and is not created in time.
        """
        cluster = self._cluster
        deadline = Deadline(cluster.clock, cluster.config.api_timeout_ms if timeout_ms is None else timeout_ms)
        found: dict[TopicPartition, FoundOffset] = {}
        failures: dict[TopicPartition, HeadraceError] = {}
        attempts = 0
        while True:
            left = {one: at_ms for one, at_ms in timestamps.items() if one not in found}
            try:
                failures = await self._attempt(left, found, deadline)
            except KafkaTimeout:
                if not failures:
                    raise
                raise _timeout_error(failures, deadline) from None  # the earlier attempt says more than the timeout
            if len(found) == len(timestamps):
                return found
            attempts += 1
            cluster.invalidate()
            delay_ms = self._backoff.delay_ms(attempts)
            if delay_ms >= deadline.left_ms():
                raise _timeout_error(failures, deadline)
            await self._sleep(delay_ms / 1000)

    async def _attempt(
        self, timestamps: Mapping[TopicPartition, int], found: dict[TopicPartition, FoundOffset], deadline: Deadline
    ) -> dict[TopicPartition, HeadraceError]:
        """Asks once for all partitions. Returns the failures that may pass."""
        cluster = self._cluster
        topics = {partition.topic for partition in timestamps}
        if cluster.is_stale() or any(cluster.leader(*one) is None for one in timestamps):
            await cluster.refresh(topics, create=self._create, timeout_ms=max(1, deadline.left_ms()))
        failures: dict[TopicPartition, HeadraceError] = {}
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for partition, at_ms in timestamps.items():
            leader = cluster.leader(*partition)
            if leader is None:
                failures[partition] = self._no_leader(partition)
            else:
                by_node.setdefault(leader.id, {})[partition] = at_ms
        for node_failures in await asyncio.gather(*(self._ask(*item, found, deadline) for item in by_node.items())):
            failures |= node_failures
        return failures

    def _no_leader(self, partition: TopicPartition) -> HeadraceError:
        error = self._cluster.why_no_leader(*partition)
        if not error.is_retriable:
            raise error
        return error

    async def _ask(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        deadline: Deadline,
    ) -> dict[TopicPartition, HeadraceError]:
        timeout_ms = max(1, min(self._cluster.config.request_timeout_ms, deadline.left_ms()))
        try:
            connection = await self._cluster.connection(node_id, timeout_ms=timeout_ms)
            answer = await connection.ask(
                Api.LIST_OFFSETS,
                timeout_ms=timeout_ms,
                replica_id=-1,
                isolation_level=int(self._read_committed),
                topics=self._topics(timestamps),
                timeout=int(timeout_ms),
            )
        except (BrokerUnreachable, KafkaTimeout) as error:
            return dict.fromkeys(timestamps, error)
        failures: dict[TopicPartition, HeadraceError] = {}
        for topic in answer.topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.name, int(one.partition_index))
                if one.error_code is ErrorCode.none:
                    epoch = int(getattr(one, "leader_epoch", -1))
                    found[partition] = FoundOffset(int(one.offset), int(one.timestamp), epoch)
                    continue
                failures[partition] = error_for(one.error_code, f"looking up an offset of {partition}")
                if not is_retriable(one.error_code):
                    raise failures[partition]
        return failures

    def _topics(self, timestamps: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, partition), at_ms in timestamps.items():
            info = self._cluster.metadata.partition(topic, partition)
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "current_leader_epoch": -1 if info is None else info.leader_epoch,
                    "timestamp": at_ms,
                }
            )
        return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def _timeout_error(failures: Mapping[TopicPartition, HeadraceError], deadline: Deadline) -> HeadraceError:
    unknown = next((error for error in failures.values() if isinstance(error, UnknownTopic)), None)
    if unknown is not None:
        return unknown
    reasons = "; ".join(dict.fromkeys(map(str, failures.values())))
    return KafkaTimeout(f"the offsets were not found within {deadline.timeout_ms:.0f} ms: {reasons}")
