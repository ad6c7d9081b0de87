"""Holds what a consumer reads: topics by name, topics by a pattern, or partitions that the user has assigned.

A consumer has one of these three at a time. A pattern must match the whole name of a topic. With
``group.protocol=consumer``, the broker resolves a pattern that is a string (RE2 syntax). A compiled pattern, and any
pattern with the classic protocol, is matched here against all topics.

A membership uses this object to assign and revoke partitions (``membership/interfaces.py``).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.fetch_positions import FetchPositions
from headrace.client.consumer.poll_buffer import PollBuffer
from headrace.client.membership.group_metrics import GroupMetrics
from headrace.client.types import TopicPartition
from headrace.protocol.errors import ErrorCode

#: A function or coroutine function that gets a sorted list of partitions.
Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]


class Callbacks(NamedTuple):
    """The user's callbacks for rebalances."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class Subscription:
    """The subscription of one consumer. It implements ``GroupSubscription`` for the consumer's membership."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        positions: FetchPositions,
        poll_buffer: PollBuffer,
        metrics: GroupMetrics,
        *,
        commit: Callable[[], Awaitable[None]],
        notify: Callable[[], None],
    ) -> None:
        """
        :param commit: commits the consumed offsets, if ``enable.auto.commit`` is on.
        :param notify: wakes a waiting ``poll()``.
        """
        self._cluster = cluster
        self._config = config
        self._positions = positions
        self._poll_buffer = poll_buffer
        self._metrics = metrics
        self._commit = commit
        self.notify = notify
        #: Called when the assigned partitions have changed.
        self.on_partitions_changed: Callable[[], None] = lambda: None
        self.callbacks = Callbacks()
        self._names: frozenset[str] = frozenset()
        self._matcher: re.Pattern[str] | None = None
        self._pattern: str | None = None
        self._matched: frozenset[str] = frozenset()
        self._matched_at_ms: int | None = None

    # -- for the consumer

    def change(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None, callbacks: Callbacks) -> None:
        """Subscribes to topics by name, or to those that match a pattern.

        :raises ValueError: if both or none of them are given, or the pattern is not a regular expression.
        """
        topics = [topics] if isinstance(topics, str) else list(topics)
        if bool(topics) == (pattern is not None):
            raise ValueError("subscribe() takes either topics or a pattern")
        if pattern is None:
            self._to_topics(topics, callbacks)
        else:
            self._to_pattern(pattern, callbacks)

    def _to_topics(self, topics: Iterable[str], callbacks: Callbacks) -> None:
        self.clear()
        self._names, self.callbacks = frozenset(topics), callbacks
        self._cluster.metadata.followed |= self._names
        self._cluster.invalidate()

    def _to_pattern(self, pattern: str | re.Pattern[str], callbacks: Callbacks) -> None:
        self.clear()
        if isinstance(pattern, str) and self._config.group_protocol == "consumer":
            self._pattern = pattern
        else:
            try:
                self._matcher = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        self.callbacks = callbacks

    def clear(self) -> None:
        self._names = self._matched = frozenset()
        self._matcher = self._pattern = self._matched_at_ms = None
        self.callbacks = Callbacks()

    def set_partitions(self, partitions: set[TopicPartition]) -> None:
        """Reads exactly these partitions. Partitions that stay assigned keep their positions."""
        gone = self._positions.assignment() - partitions
        if gone:
            self._poll_buffer.drop(gone)
        self._positions.assign(sorted(partitions))
        topics = {partition.topic for partition in partitions} - self._cluster.metadata.followed
        if topics:
            self._cluster.metadata.followed |= topics
            self._cluster.invalidate()
        self.on_partitions_changed()

    async def refresh(self) -> None:
        """Refreshes the metadata, and the topics that match the pattern."""
        matcher = self._matcher
        if matcher is None:
            await self._cluster.refresh(create=self._config.allow_auto_create_topics)
            return
        await self._cluster.refresh(all_topics=True, create=False)
        if self._matcher is not matcher:
            return  # The subscription has changed meanwhile.
        self._matched = frozenset(
            topic.name
            for topic in self._cluster.metadata.topics.values()
            if matcher.fullmatch(topic.name)
            and topic.error is ErrorCode.none
            and not (topic.is_internal and self._config.exclude_internal_topics)
        )
        self._matched_at_ms = self._cluster.clock.monotonic_ms()
        self._cluster.metadata.followed |= self._matched

    def must_refresh(self) -> bool:
        """Whether :meth:`refresh` is due."""
        if self._cluster.is_stale():
            return True
        if self._matcher is None:
            return False
        # Other refreshes of the metadata ask only for topics that are known, so they find no new matches.
        now_ms = self._cluster.clock.monotonic_ms()
        return self._matched_at_ms is None or now_ms - self._matched_at_ms >= self._config.metadata_max_age_ms

    # -- for the membership: see GroupSubscription

    def topics(self) -> frozenset[str]:
        return self._matched if self._matcher is not None else self._names

    def pattern(self) -> str | None:
        return self._pattern

    def assignment(self) -> set[TopicPartition]:
        return self._positions.assignment()

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        topics = set(topics)
        metadata = self._cluster.metadata
        if self._cluster.is_stale() or not topics <= metadata.topics.keys():
            await self._cluster.refresh(topics, create=self._config.allow_auto_create_topics)
        return {topic: len(metadata.partitions(topic)) for topic in topics}

    async def before_rebalance(self) -> None:
        await self._commit()

    async def revoke(self, partitions: set[TopicPartition]) -> None:
        await self._give_up(partitions, "on_revoked", self.callbacks.on_revoked)

    async def lose(self, partitions: set[TopicPartition]) -> None:
        await self._give_up(partitions, "on_lost", self.callbacks.on_lost or self.callbacks.on_revoked)

    async def _give_up(self, partitions: set[TopicPartition], name: str, callback: Callback | None) -> None:
        if not partitions:
            return
        try:
            await self._call(name, callback, partitions)
        finally:
            self.set_partitions(self.assignment() - partitions)

    async def assign(self, partitions: set[TopicPartition]) -> None:
        new = partitions - self.assignment()
        self.set_partitions(partitions)
        await self._call("on_assigned", self.callbacks.on_assigned, new)

    async def _call(self, name: str, callback: Callback | None, partitions: set[TopicPartition]) -> None:
        if callback is not None:
            with self._metrics.timed(name):
                result = callback(sorted(partitions))
                if isawaitable(result):
                    await result
