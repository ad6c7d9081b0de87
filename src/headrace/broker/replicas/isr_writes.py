"""Changes of ISRs, on their way to the tree and to the controller.

A leader changes an ISR by writing the partition's ``state`` znode, if it still has the version that the leader knows.
Where it has another, the leader waits for the controller's word, which is what the other write was. Where the
connection breaks before the answer, or the tree cannot write, it is tried until the outcome is known: meanwhile the
change is pending, and the high watermark waits for both sets.

The controller does not watch those znodes. It is told which of them have changed by a sequential znode under
``/isr_change_notification``, one for many: the first change is told of soon, those that follow at most every so often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from logging import getLogger

from headrace.coordination import retried_changes
from headrace.coordination.interface import (
    BadVersionError,
    ConnectionLostError,
    Coordination,
    CoordinationError,
    NoNodeError,
    SessionExpiredError,
)
from headrace.coordination.paths import ISR_CHANGE_PREFIX, partition_state_path
from headrace.coordination.znodes import PartitionSet, PartitionState
from headrace.replication.leader import IsrChange
from headrace.replication.replicated_partition import ReplicatedPartition
from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer, TimerTask

logger = getLogger(__name__)

_TELL_SOON_MS = 20
_TELL_EVERY_MS = 400
_AGAIN_AFTER_MS = 200


class IsrWrites:
    def __init__(
        self,
        coordination: Callable[[], Coordination],
        clock: Clock,
        timer: Timer,
        run_soon: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._timer = timer
        self._run_soon = run_soon
        self._changed: set[tuple[str, int]] = set()
        self._telling: TimerTask | None = None
        self._told_ms = -_TELL_EVERY_MS
        self._is_closed = False

    def submit(self, partition: ReplicatedPartition, change: IsrChange) -> None:
        if not self._is_closed:
            self._run_soon(self._write(partition, change))

    async def _write(self, partition: ReplicatedPartition, change: IsrChange) -> None:
        topic, index = partition.key
        isr = list(change.state.isr)
        while not self._is_closed and partition.leader is not None and partition.leader.pending == change:
            try:
                version = await self._attempt(partition_state_path(topic, index), change)
            except CoordinationError as error:
                if not isinstance(error, ConnectionLostError | SessionExpiredError):
                    logger.warning("%s-%d: the ISR is not %s yet, and it is tried again: %r", topic, index, isr, error)
                await asyncio.sleep(_AGAIN_AFTER_MS / 1000)
                continue
            if version is None:
                logger.info("%s-%d: the ISR does not become %s: the state is another by now", topic, index, isr)
                partition.isr_refused(change)
            else:
                logger.info("%s-%d: the ISR is %s", topic, index, isr)
                partition.isr_written(change, version)
                self._tell((topic, index))
            return

    async def _attempt(self, path: str, change: IsrChange) -> int | None:
        """The znode's new version; None if somebody else has written."""
        coordination = self._coordination()
        content = change.state.to_json()
        with suppress(NoNodeError):
            try:
                stat = await retried_changes.set_data(coordination, path, content, version=change.expected_version)
            except BadVersionError:
                # Perhaps it was us, in a session that was lost before we heard of it.
                data, stat = await coordination.get(path)
                if PartitionState.from_json(data) != change.state or stat.version != change.expected_version + 1:
                    return None
            return stat.version
        return None

    # Telling the controller

    def _tell(self, partition: tuple[str, int]) -> None:
        self._changed.add(partition)
        if self._telling is None:
            left_ms = self._told_ms + _TELL_EVERY_MS - self._clock.monotonic_ms()
            self._telling = self._timer.schedule(max(_TELL_SOON_MS, left_ms), self._tell_now)

    def _tell_now(self) -> None:
        self._telling = None
        if not self._is_closed and self._changed:
            self._told_ms = self._clock.monotonic_ms()
            changed, self._changed = self._changed, set()
            self._run_soon(self._announce(PartitionSet.of(changed)))

    async def _announce(self, changed: PartitionSet) -> None:
        try:
            await retried_changes.create_at_least_once(self._coordination(), ISR_CHANGE_PREFIX, changed.to_json())
        except CoordinationError as error:
            logger.warning("the controller was not told of changed ISRs, and is told again: %s", error)
            for partition in changed.partitions:
                self._tell(partition)

    def close(self) -> None:
        self._is_closed = True
        if self._telling is not None:
            self._telling.cancel()
