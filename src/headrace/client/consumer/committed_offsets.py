"""Reads and writes the committed offsets of a group: OffsetFetch (v1 and higher) and OffsetCommit (v2 and higher).

Commits are sent one after another, so that the later of two commits wins, even if the first one had to be sent again. A
commit contains the member and its generation or epoch. The coordinator refuses a commit of a member that is not in the
group any more. Only stable offsets are fetched: while an open transaction commits offsets of the group, the coordinator
answers with an error, and the request is sent again (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import BrokerUnreachable, ErrorCode, HeadraceError, KafkaTimeout, error_for
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.membership.interfaces import MemberIdentity, Membership
from headrace.client.retry import Backoff, Deadline
from headrace.client.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headrace.protocol.api import Api

#: From version 10 on, requests have topic ids instead of names.
_MAX_VERSION = 9

T = TypeVar("T")
R = TypeVar("R")

#: Errors that may pass within a short time.
_PASSING = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.unstable_offset_commit,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_topic_or_partition,
    }
)
_MOVED = frozenset({ErrorCode.coordinator_not_available, ErrorCode.not_coordinator})
#: The coordinator does not know the member or its generation, so the same commit would fail again.
_FENCED_MEMBER = frozenset({ErrorCode.unknown_member_id, ErrorCode.illegal_generation, ErrorCode.fenced_instance_id})
_FENCED = (
    "; the group has given the partitions to other members, for example because poll() was not called for "
    "max.poll.interval.ms"
)
_HINTS = {
    ErrorCode.unknown_member_id: _FENCED,
    ErrorCode.illegal_generation: _FENCED,
    ErrorCode.rebalance_in_progress: "; the group is rebalancing: call poll() to finish the rebalance",
}


class GroupOffsets:
    """The committed offsets of one group."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        metrics: GroupMetrics,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._metrics = metrics
        self._sleep = sleep
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._committing = asyncio.Lock()
        #: The consumer's membership, while it is a member of the group.
        self.membership: Membership | None = None

    def identity(self) -> MemberIdentity:
        return MemberIdentity() if self.membership is None else self.membership.identity()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the consumer's place in the group, for a transaction that commits its offsets."""
        identity = self.identity()
        return ConsumerGroupMetadata(
            self._group_id, identity.generation, identity.member_id, identity.group_instance_id
        )

    # -- fetching

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each partition; None if there is none."""
        wanted = list(partitions)

        async def attempt(deadline: Deadline) -> tuple[ErrorCode, dict[TopicPartition, OffsetAndMetadata | None]]:
            answer = await self._ask(Api.OFFSET_FETCH, self._fetch_fields(wanted), deadline)
            return _committed(answer)

        found = await self._until(attempt, "fetching the offsets", timeout_ms)
        return {partition: found.get(partition) for partition in wanted}

    def _fetch_fields(self, partitions: list[TopicPartition]) -> dict[str, Any]:
        topics = [
            {"name": topic, "partition_indexes": indexes}
            for topic, indexes in _by_topic({one: one.partition for one in partitions}).items()
        ]
        identity = self.identity()
        member: dict[str, object] = {"member_id": None, "member_epoch": -1}
        if identity.is_epoch and identity.generation >= 0:
            member = {"member_id": identity.member_id, "member_epoch": identity.generation}
        group = {"group_id": self._group_id, "topics": topics, **member}
        return {"groups": [group], "group_id": self._group_id, "topics": topics, "require_stable": True}

    # -- committing

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: float | None = None
    ) -> None:
        """Commits offsets, and waits for the answer.

        :raises MemberFenced: if the group has given the partitions to other members.
        :raises KafkaTimeout: if the coordinator does not accept the commit in time.
        """
        if not offsets:
            return
        async with self._committing:

            async def attempt(deadline: Deadline) -> tuple[ErrorCode, None]:
                answer = await self._ask(Api.OFFSET_COMMIT, self._commit_fields(offsets), deadline)
                return _worst(answer), None

            await self._until(attempt, "committing offsets", timeout_ms)

    def _commit_fields(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[str, Any]:
        identity = self.identity()
        rows = {
            partition: {
                "partition_index": partition.partition,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "committed_metadata": offset.metadata,
            }
            for partition, offset in offsets.items()
        }
        return {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": identity.generation,
            "member_id": identity.member_id,
            "group_instance_id": identity.group_instance_id,
            "retention_time": -1,
            "topics": [{"name": topic, "partitions": found} for topic, found in _by_topic(rows).items()],
        }

    # -- both

    async def _ask(self, api: Api, fields: dict[str, Any], deadline: Deadline) -> Any:
        connection = await self._cluster.coordinator("group", self._group_id, timeout_ms=max(1, deadline.left_ms()))
        timeout_ms = max(1, min(self._cluster.config.request_timeout_ms, deadline.left_ms()))
        version = connection.version_of(api, _MAX_VERSION)
        with self._metrics.timed("commit") if api is Api.OFFSET_COMMIT else nullcontext():
            return await connection.ask(api, version=version, timeout_ms=timeout_ms, **fields)

    async def _until(
        self, attempt: Callable[[Deadline], Awaitable[tuple[ErrorCode, T]]], what: str, timeout_ms: float | None
    ) -> T:
        cluster = self._cluster
        deadline = Deadline(cluster.clock, cluster.config.api_timeout_ms if timeout_ms is None else timeout_ms)
        what = f"{what} of the group {self._group_id!r}"
        attempts = 0
        while True:
            failure: HeadraceError
            try:
                code, found = await attempt(deadline)
                if code is ErrorCode.none:
                    return found
                failure = self._refusal(code, what)
            except (BrokerUnreachable, KafkaTimeout) as error:
                cluster.forget_coordinator("group", self._group_id)
                failure = error
            attempts += 1
            delay_ms = self._backoff.delay_ms(attempts)
            if delay_ms >= deadline.left_ms():
                kind = BrokerUnreachable if isinstance(failure, BrokerUnreachable) else KafkaTimeout
                raise kind(
                    f"{what} failed {attempts} times within {deadline.timeout_ms:.0f} ms, the last time: {failure}"
                )
            await self._sleep(delay_ms / 1000)

    def _refusal(self, code: ErrorCode, what: str) -> HeadraceError:
        """Returns the error if the request can be sent again; raises it otherwise."""
        if code in _MOVED:
            self._cluster.forget_coordinator("group", self._group_id)
        if self.membership is not None and code in _FENCED_MEMBER:
            self.membership.commit_refused(code)
        is_behind = code is ErrorCode.stale_member_epoch and self.identity().generation >= 0
        error = error_for(code, what + _HINTS.get(code, ""))
        if code in _PASSING or is_behind:
            return error
        raise error


def _committed(answer: Any) -> tuple[ErrorCode, dict[TopicPartition, OffsetAndMetadata | None]]:
    group = answer.groups[0] if hasattr(answer, "groups") else answer
    worst: ErrorCode = getattr(group, "error_code", ErrorCode.none)
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        for one in topic.partitions:
            if one.error_code not in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                worst = one.error_code
            if one.committed_offset >= 0:
                found[TopicPartition(topic.name, int(one.partition_index))] = OffsetAndMetadata(
                    int(one.committed_offset), one.metadata or "", int(getattr(one, "committed_leader_epoch", -1))
                )
    return worst, found


def _worst(answer: Any) -> ErrorCode:
    """Returns the code that decides about the whole commit: one that does not pass, if there is any."""
    codes = {one.error_code for topic in answer.topics for one in topic.partitions} - {ErrorCode.none}
    final = codes - _PASSING
    return next(iter(final or codes), ErrorCode.none)


def _by_topic(rows: Mapping[TopicPartition, R]) -> dict[str, list[R]]:
    topics: dict[str, list[R]] = {}
    for (topic, _), row in rows.items():
        topics.setdefault(topic, []).append(row)
    return topics
