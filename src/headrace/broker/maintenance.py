"""What has to be done from time to time, on the timing wheel: retention, checkpoints, flushes, compaction, expiry.

A job runs on the loop if it changes the state of logs, and on a thread if it is slow; compaction does both in turn. A
job is scheduled anew when it has ended, with its interval as it is then, so that a dynamic change holds from the next
round on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.relocations import Relocations
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.log.compaction.cleaner import Cleaner, CleanerConfig

logger = getLogger(__name__)

_LOGS_A_TURN = 200
_REMOVE_DELETED_EVERY_MS = 1_000
_EXPIRE_PRODUCERS_EVERY_MS = 600_000


class Maintenance:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timers: dict[str, TimerTask] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self.relocations = Relocations(broker)
        config = broker.config
        self._jobs: dict[str, tuple[Callable[[], int], Callable[[], Awaitable[None]]]] = {
            "retention": (lambda: config.int("log.retention.check.interval.ms"), self._retention),
            "checkpoint": (lambda: config.int("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            "flush": (lambda: min(config.int("log.flush.scheduler.interval.ms"), 60_000), self._flush),
            "producer expiry": (lambda: _EXPIRE_PRODUCERS_EVERY_MS, self._expire_producers),
            "offset expiry": (lambda: config.int("offsets.retention.check.interval.ms"), self._expire_offsets),
            "delete": (lambda: _REMOVE_DELETED_EVERY_MS, self._remove_deleted),
        }
        if config.bool("log.cleaner.enable"):
            self._jobs["compaction"] = (lambda: config.int("log.cleaner.backoff.ms"), self._compact)

    @cached_property
    def cleaner(self) -> Cleaner:
        """Made, and imported, when the first round comes: a start does not pay for it."""
        from headrace.log.compaction.cleaner import Cleaner

        return Cleaner(self._broker.clock)

    def start(self) -> None:
        for name in self._jobs:
            self._schedule(name)

    async def stop(self) -> None:
        self._is_stopped = True
        self.relocations.stop()
        for task in self._timers.values():
            task.cancel()
        await self.settle()

    async def settle(self) -> None:
        """Waits for whatever runs now."""
        if self._running:
            await asyncio.wait(self._running)

    def _schedule(self, name: str) -> None:
        if not self._is_stopped:
            interval_ms, _ = self._jobs[name]
            self._timers[name] = self._broker.timer.schedule(interval_ms(), lambda: self.run_soon(self._run(name)))

    def run_soon(self, job: Coroutine[None, None, None]) -> None:
        """Runs something once, and waits for it before the broker stops."""
        task = self._broker.loop.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, name: str) -> None:
        try:
            await self._jobs[name][1]()
        except Exception:
            logger.exception("maintenance job %r failed; it runs again at its next time", name)
        finally:
            self._schedule(name)

    async def _retention(self) -> None:
        for number, log in enumerate(list(self._broker.logs.all())):
            if number % _LOGS_A_TURN == 0:
                await asyncio.sleep(0)
            if not log.is_closed and log.log_dir.error is None:
                log.enforce_retention()

    async def _checkpoint(self) -> None:
        self._broker.logs.checkpoint()

    async def _flush(self) -> None:
        for log in self._broker.logs.flush_due():
            await self._broker.run_blocking(log.flush)

    async def _expire_producers(self) -> None:
        for log in list(self._broker.logs.all()):
            log.expire_producers()

    async def _expire_offsets(self) -> None:
        await self._broker.groups.expire_offsets()

    async def _remove_deleted(self) -> None:
        if self._broker.logs.has_deleted:
            await self._broker.run_blocking(self._broker.logs.remove_deleted)

    async def _compact(self) -> None:
        """One log after the other, until none is dirty enough."""
        cleaner, broker = self.cleaner, self._broker
        cleaner.config = self._cleaner_config()
        while not self._is_stopped and (log := cleaner.next_to_clean(broker.logs.all())) is not None:
            plan = cleaner.plan(log)
            if plan is None:
                return
            try:
                cleaned = await broker.run_blocking(cleaner.build, plan, lambda: self._is_stopped)
            except Exception as error:  # noqa: BLE001  the cleaner says what it means for the log
                cleaner.abort(log, error)
                return
            cleaner.commit(log, cleaned)

    def _cleaner_config(self) -> CleanerConfig:
        from headrace.log.compaction.cleaner import CleanerConfig

        config = self._broker.config
        return CleanerConfig(
            dedupe_buffer_bytes=config.int("log.cleaner.dedupe.buffer.size"),
            io_max_bytes_per_second=config.float("log.cleaner.io.max.bytes.per.second"),
        )
