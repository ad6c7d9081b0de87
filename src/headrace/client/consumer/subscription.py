"""What a consumer reads, and the consumer as its group sees it: topics, callbacks, and the partitions that follow.

Of three ways one at a time: topics by name, topics by a pattern, or partitions that the user assigned himself. A
pattern must match a whole name. With ``group.protocol=consumer`` a pattern given as text is the broker's to resolve
(RE2 syntax); one that is compiled, and any with the classic protocol, is matched here against all topics.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.config import ConsumerConfig
from headrace.client.consumer.fetch_positions import FetchPositions
from headrace.client.consumer.poll_buffer import Handout
from headrace.client.types import TopicPartition
from headrace.protocol.errors import ErrorCode

#: Takes partitions, sorted; may be a coroutine function.
Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]


class Callbacks(NamedTuple):
    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class Subscription:
    """The host of a membership: see ``group_host.py``."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        positions: FetchPositions,
        handout: Handout,
        *,
        commit: Callable[[], Awaitable[None]],
        moved: Callable[[], None],
        notify: Callable[[], None],
    ) -> None:
        """
        :param commit: commits what was handed out, if that is automatic.
        :param moved: to be told when the partitions have changed.
        """
        self._cluster = cluster
        self._config = config
        self._positions = positions
        self._handout = handout
        self._commit = commit
        self._moved = moved
        self.notify = notify
        self.callbacks = Callbacks()
        self.names: frozenset[str] = frozenset()
        self.matcher: re.Pattern[str] | None = None
        self._pattern: str | None = None
        self._matched: frozenset[str] = frozenset()
        self._matched_at_ms: int | None = None

    # -- the user's side

    @property
    def is_of_group(self) -> bool:
        return bool(self.names) or self.matcher is not None or self._pattern is not None

    def to_topics(self, topics: Iterable[str], callbacks: Callbacks) -> None:
        self.clear()
        self.names, self.callbacks = frozenset(topics), callbacks
        self._cluster.metadata.followed |= self.names
        self._cluster.invalidate()

    def to_pattern(self, pattern: str | re.Pattern[str], callbacks: Callbacks) -> None:
        """
        :raises ValueError: if it is no pattern.
        """
        self.clear()
        if isinstance(pattern, str) and self._config.group_protocol == "consumer":
            self._pattern = pattern
        else:
            try:
                self.matcher = re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no pattern: {error}") from None
        self.callbacks = callbacks

    def clear(self) -> None:
        self.names = self._matched = frozenset()
        self.matcher = self._pattern = self._matched_at_ms = None
        self.callbacks = Callbacks()

    def set_partitions(self, partitions: set[TopicPartition]) -> None:
        """Reads these and no others; those that stay keep their positions."""
        gone = self._positions.assignment() - partitions
        if gone:
            self._handout.drop(gone)
        self._positions.assign(sorted(partitions))
        topics = {partition.topic for partition in partitions} - self._cluster.metadata.followed
        if topics:
            self._cluster.metadata.followed |= topics
            self._cluster.invalidate()
        self._moved()

    async def refresh(self) -> None:
        """Brings metadata up to date, and what the pattern matches."""
        if self.matcher is None:
            await self._cluster.refresh(create=self._config.allow_auto_create_topics)
            return
        await self._cluster.refresh(all_topics=True, create=False)
        self._matched = frozenset(
            topic.name
            for topic in self._cluster.metadata.topics.values()
            if self.matcher.fullmatch(topic.name)
            and topic.error is ErrorCode.none
            and not (topic.is_internal and self._config.exclude_internal_topics)
        )
        self._matched_at_ms = self._cluster.clock.monotonic_ms()
        self._cluster.metadata.followed |= self._matched

    def must_refresh(self) -> bool:
        if self._cluster.is_stale():
            return True
        if self.matcher is None:
            return False
        # Others refresh metadata too, but only for the topics that are known.
        now_ms = self._cluster.clock.monotonic_ms()
        return self._matched_at_ms is None or now_ms - self._matched_at_ms >= self._config.metadata_max_age_ms

    # -- the membership's side

    def topics(self) -> frozenset[str]:
        return self._matched if self.matcher is not None else self.names

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
        await self._give_up(partitions, self.callbacks.on_revoked)

    async def lose(self, partitions: set[TopicPartition]) -> None:
        await self._give_up(partitions, self.callbacks.on_lost or self.callbacks.on_revoked)

    async def _give_up(self, partitions: set[TopicPartition], callback: Callback | None) -> None:
        if not partitions:
            return
        try:
            await _call(callback, partitions)
        finally:
            self.set_partitions(self.assignment() - partitions)

    async def assign(self, partitions: set[TopicPartition]) -> None:
        new = partitions - self.assignment()
        self.set_partitions(partitions)
        await _call(self.callbacks.on_assigned, new)


async def _call(callback: Callback | None, partitions: set[TopicPartition]) -> None:
    if callback is not None:
        waiting = callback(sorted(partitions))
        if isawaitable(waiting):
            await waiting
