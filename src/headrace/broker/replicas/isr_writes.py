"""Writes changes of ISRs to the tree, and notifies the controller.

A leader changes an ISR by writing the partition's ``state`` znode, if the znode still has the version that the leader
knows. If it has another version, the controller has written it, and the leader waits for the controller's LeaderAndIsr.
If the connection breaks before the answer, or the tree cannot write, the leader tries again until it knows the outcome.
Until then the change is pending, and the high watermark waits for both the old and the new ISR.

The controller does not watch the ``state`` znodes. A sequential znode under ``/isr_change_notification`` names those
that have changed. One notification names many changes: the first change is notified after 20 ms, later ones at most
every 400 ms.
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

_FIRST_NOTIFICATION_MS = 20
_NOTIFICATION_INTERVAL_MS = 400
_RETRY_AFTER_MS = 200


class IsrWrites:
    """Writes the ISR changes of all partitions that this broker leads."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        timer: Timer,
        run_soon: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._timer = timer
        self._run_soon = run_soon
        self._changed: set[tuple[str, int]] = set()
        self._notification: TimerTask | None = None
        self._notified_ms = -_NOTIFICATION_INTERVAL_MS
        self._is_stopped = False

    def submit(self, partition: ReplicatedPartition, change: IsrChange) -> None:
        if not self._is_stopped:
            self._run_soon(self._write(partition, change))

    async def _write(self, partition: ReplicatedPartition, change: IsrChange) -> None:
        topic, index = partition.key
        isr = list(change.state.isr)
        while not self._is_stopped and partition.leader is not None and partition.leader.pending == change:
            try:
                version = await self._attempt(partition_state_path(topic, index), change)
            except CoordinationError as error:
                if not isinstance(error, ConnectionLostError | SessionExpiredError):
                    logger.warning("%s-%d: the ISR %s could not be written, trying again: %r", topic, index, isr, error)
                await asyncio.sleep(_RETRY_AFTER_MS / 1000)
                continue
            if version is None:
                logger.info(
                    "%s-%d: the ISR does not become %s: the controller has changed the state", topic, index, isr
                )
                partition.isr_rejected(change)
            else:
                logger.info("%s-%d: the ISR is %s", topic, index, isr)
                partition.isr_written(change, version)
                self._notify((topic, index))
            return

    async def _attempt(self, path: str, change: IsrChange) -> int | None:
        """The znode's new version; None if the controller has written it."""
        coordination = self._coordination
        content = change.state.to_json()
        with suppress(NoNodeError):
            try:
                stat = await retried_changes.set_data(coordination, path, content, version=change.expected_version)
            except BadVersionError:
                # Perhaps this broker wrote it, in a session that was lost before the answer came.
                data, stat = await coordination.get(path)
                if PartitionState.from_json(data) != change.state or stat.version != change.expected_version + 1:
                    return None
            return stat.version
        return None

    # Notifying the controller

    def _notify(self, partition: tuple[str, int]) -> None:
        self._changed.add(partition)
        if self._notification is None:
            left_ms = self._notified_ms + _NOTIFICATION_INTERVAL_MS - self._clock.monotonic_ms()
            self._notification = self._timer.schedule(max(_FIRST_NOTIFICATION_MS, left_ms), self._notify_now)

    def _notify_now(self) -> None:
        self._notification = None
        if not self._is_stopped and self._changed:
            self._notified_ms = self._clock.monotonic_ms()
            changed, self._changed = self._changed, set()
            self._run_soon(self._write_notification(PartitionSet.of(changed)))

    async def _write_notification(self, changed: PartitionSet) -> None:
        try:
            await retried_changes.create_at_least_once(self._coordination, ISR_CHANGE_PREFIX, changed.to_json())
        except CoordinationError as error:
            logger.warning("the controller was not notified of changed ISRs, trying again: %s", error)
            for partition in changed.partitions:
                self._notify(partition)

    def stop(self) -> None:
        self._is_stopped = True
        if self._notification is not None:
            self._notification.cancel()
