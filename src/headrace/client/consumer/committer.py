"""Commits the offsets of a consumer: when the user asks for it, automatically, and before a rebalance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from logging import getLogger

from headrace.client.config import ConsumerConfig
from headrace.client.consumer.committed_offsets import GroupOffsets
from headrace.client.consumer.poll_buffer import PollBuffer
from headrace.client.errors import HeadraceError
from headrace.client.types import OffsetAndMetadata, TopicPartition
from headrace.runtime.clock import Clock

logger = getLogger(__name__)

#: How long the commit before a rebalance, or before closing, may take.
_LAST_COMMIT_MS = 5_000

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
#: Called with the offsets, and with the error if the commit failed.
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], HeadraceError | None], object]


class Committer:
    """Commits the offsets of one consumer, on its event loop."""

    def __init__(
        self,
        config: ConsumerConfig,
        offsets: GroupOffsets | None,
        poll_buffer: PollBuffer,
        clock: Clock,
        start: Callable[[], Awaitable[None]],
    ) -> None:
        """
        :param offsets: the committed offsets of the group; None without a group.
        :param start: starts the consumer, if it is not started yet.
        """
        self._interval_ms = config.auto_commit_interval_ms
        self._is_automatic = config.enable_auto_commit
        self._offsets = offsets
        self._poll_buffer = poll_buffer
        self._clock = clock
        self._start = start
        self._next_commit_ms: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def offsets(self) -> GroupOffsets:
        """The committed offsets of the group.

        :raises HeadraceError: if the consumer has no group.
        """
        if self._offsets is None:
            raise HeadraceError("this consumer has no group_id, so it has no committed offsets and cannot commit")
        return self._offsets

    async def commit(self, offsets: Offsets | None, timeout_ms: float | None) -> None:
        """Commits these offsets, or the offsets behind all records that the user has got."""
        await self._start()
        await self.offsets.commit(self._to_commit(offsets), timeout_ms=timeout_ms)

    def commit_nowait(self, offsets: Offsets | None, callback: CommitCallback | None) -> asyncio.Task[None]:
        """Starts a commit and does not wait for it. Commits are sent in the order of the calls."""
        work = self._commit_and_call_back(self.offsets, self._to_commit(offsets), callback)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _commit_and_call_back(
        self,
        group_offsets: GroupOffsets,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
    ) -> None:
        try:
            await self._start()
            await group_offsets.commit(offsets)
        except HeadraceError as error:
            if callback is None:
                logger.warning("a commit in the background failed: %s", error)
            else:
                callback(offsets, error)
        else:
            if callback is not None:
                callback(offsets, None)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._poll_buffer.consumed()
        return {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }

    @property
    def is_due(self) -> bool:
        """Whether the next automatic commit is due. May be asked on any thread."""
        return self._next_commit_ms is not None and self._clock.monotonic_ms() >= self._next_commit_ms

    def commit_if_due(self) -> None:
        """Starts an automatic commit every ``auto.commit.interval.ms``."""
        if not self._is_automatic:
            return
        now_ms = self._clock.monotonic_ms()
        if self._next_commit_ms is None:
            self._next_commit_ms = now_ms + self._interval_ms
        elif now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self._interval_ms
            if self._poll_buffer.consumed():
                self.commit_nowait(None, None)

    async def commit_before_rebalance(self) -> None:
        """Commits automatically before other members get the partitions, so that they do not read records again.

        If the commit fails, the other members read some records again.
        """
        if not self._is_automatic or self._offsets is None:
            return
        try:
            await self._offsets.commit(self._poll_buffer.consumed(), timeout_ms=_LAST_COMMIT_MS)
        except HeadraceError as error:
            logger.warning("the last commit failed, so some records will be read again: %s", error)

    async def wait(self) -> None:
        """Waits for the commits in the background."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
