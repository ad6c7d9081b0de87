"""Runs the periodic jobs of a broker: retention, checkpoints, flushes, compaction, expiry.

A job runs on the event loop if it changes the state of logs, and on a thread if it is slow; compaction does both in
turn. When a job has ended, the timer schedules it again with its current interval. So a changed setting is in force
from the next run on.
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
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.log.compaction.cleaner import Cleaner, CleanerConfig
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partitions import Partitions

logger = getLogger(__name__)

#: How many logs a job checks before the event loop may run other tasks.
_LOGS_PER_TURN = 200
_REMOVE_DELETED_EVERY_MS = 1_000
_EXPIRE_PRODUCERS_EVERY_MS = 600_000


class Maintenance:
    def __init__(
        self,
        config: BrokerConfig,
        runtime: BrokerRuntime,
        logs: LogManager,
        partitions: Partitions,
        *,
        expire_offsets: Callable[[], Awaitable[None]],
    ) -> None:
        """
        :param expire_offsets: deletes the offsets of groups whose retention time has passed.
        """
        self._config = config
        self._runtime = runtime
        self._logs = logs
        self._timers: dict[str, TimerTask] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self.relocations = Relocations(
            config, runtime, logs, partitions, run_soon=self.run_soon, on_log_replaced=self.log_deleted
        )
        self._jobs: dict[str, tuple[Callable[[], int], Callable[[], Awaitable[None]]]] = {
            "retention": (lambda: config.int("log.retention.check.interval.ms"), self._retention),
            "checkpoint": (lambda: config.int("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            "flush": (lambda: min(config.int("log.flush.scheduler.interval.ms"), 60_000), self._flush),
            "producer expiry": (lambda: _EXPIRE_PRODUCERS_EVERY_MS, self._expire_producers),
            "offset expiry": (lambda: config.int("offsets.retention.check.interval.ms"), expire_offsets),
            "delete": (lambda: _REMOVE_DELETED_EVERY_MS, self._remove_deleted),
        }
        if config.bool("log.cleaner.enable"):
            self._jobs["compaction"] = (lambda: config.int("log.cleaner.backoff.ms"), self._compact)

    @cached_property
    def cleaner(self) -> Cleaner:
        """Made and imported by the first compaction, so that a start does not pay for it."""
        from headrace.log.compaction.cleaner import Cleaner

        return Cleaner(self._runtime.clock)

    def log_deleted(self, log: PartitionLog) -> None:
        """Compaction forgets the log, also in its checkpoint file."""
        self.cleaner.forget(log)

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
        """Waits for the jobs that run now."""
        if self._running:
            await asyncio.wait(self._running)

    def _schedule(self, name: str) -> None:
        if not self._is_stopped:
            interval_ms, _ = self._jobs[name]
            self._timers[name] = self._runtime.timer.schedule(interval_ms(), lambda: self.run_soon(self._run(name)))

    def run_soon(self, job: Coroutine[None, None, None]) -> None:
        """Runs a job once. :meth:`stop` waits for its end."""
        task = self._runtime.loop.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, name: str) -> None:
        try:
            await self._jobs[name][1]()
        except Exception:
            logger.exception("the periodic job %r failed; it runs again after its interval", name)
        finally:
            self._schedule(name)

    async def _retention(self) -> None:
        for number, log in enumerate(list(self._logs.all())):
            if number % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not log.is_closed and log.log_dir.error is None:
                log.enforce_retention()

    async def _checkpoint(self) -> None:
        self._logs.checkpoint()

    async def _flush(self) -> None:
        for log in self._logs.flush_due():
            await self._runtime.run_blocking(log.flush)

    async def _expire_producers(self) -> None:
        for log in list(self._logs.all()):
            log.expire_producers()

    async def _remove_deleted(self) -> None:
        if self._logs.has_deleted:
            await self._runtime.run_blocking(self._logs.remove_deleted)

    async def _compact(self) -> None:
        """Compacts one log after the other, until no log is dirty enough."""
        cleaner = self.cleaner
        cleaner.config = self._cleaner_config()
        while not self._is_stopped and (log := cleaner.next_to_clean(self._logs.all())) is not None:
            plan = cleaner.plan(log)
            if plan is None:
                return
            try:
                cleaned = await self._runtime.run_blocking(cleaner.build, plan, lambda: self._is_stopped)
            except Exception as error:  # noqa: BLE001  the cleaner decides what it means for the log
                cleaner.abort(log, error)
                return
            cleaner.commit(log, cleaned)

    def _cleaner_config(self) -> CleanerConfig:
        from headrace.log.compaction.cleaner import CleanerConfig

        config = self._config
        return CleanerConfig(
            dedupe_buffer_bytes=config.int("log.cleaner.dedupe.buffer.size"),
            io_max_bytes_per_second=config.float("log.cleaner.io.max.bytes.per.second"),
        )
