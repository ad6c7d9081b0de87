"""Runs the periodic jobs of a broker: retention, checkpoints, flushes, compaction, expiry.

A job runs on the event loop if it changes the state of logs, and on a thread if it is slow; compaction does both in
turn. When a job has ended, the timer schedules it again with its current interval. So a changed setting is in force
from the next run on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from logging import getLogger
from typing import TYPE_CHECKING

from headrace.broker.maintenance.compactions import Compactions
from headrace.broker.maintenance.relocations import Relocations
from headrace.runtime.timer import TimerTask

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.log.compaction.cleaner import Cleaner
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
        #: The jobs that wait for their time.
        self._timers: dict[str, TimerTask] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self.relocations = Relocations(
            config, runtime, logs, partitions, run_soon=self.run_soon, on_log_replaced=self.log_deleted
        )
        self.compactions = Compactions(config, runtime, logs, is_stopped=lambda: self._is_stopped)
        self._jobs: dict[str, tuple[Callable[[], int], Callable[[], Awaitable[None]]]] = {
            "retention": (lambda: config.int("log.retention.check.interval.ms"), self._retention),
            "checkpoint": (lambda: config.int("log.flush.offset.checkpoint.interval.ms"), self._checkpoint),
            "flush": (lambda: min(config.int("log.flush.scheduler.interval.ms"), 60_000), self._flush),
            "producer expiry": (lambda: _EXPIRE_PRODUCERS_EVERY_MS, self._expire_producers),
            "offset expiry": (lambda: config.int("offsets.retention.check.interval.ms"), expire_offsets),
            "delete": (lambda: _REMOVE_DELETED_EVERY_MS, self._remove_deleted),
        }
        if config.bool("log.cleaner.enable"):
            self._jobs["compaction"] = (lambda: config.int("log.cleaner.backoff.ms"), self.compactions.run)
            config.on_change("log.cleaner.backoff.ms", lambda _: self._schedule_again("compaction"))

    @property
    def cleaner(self) -> Cleaner:
        return self.compactions.cleaner

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
        self.compactions.stop()

    async def settle(self) -> None:
        """Waits for the jobs that run now."""
        if self._running:
            await asyncio.wait(self._running)

    def _schedule(self, name: str) -> None:
        if not self._is_stopped:
            interval_ms, _ = self._jobs[name]
            self._timers[name] = self._runtime.timer.schedule(interval_ms(), lambda: self._start(name))

    def _start(self, name: str) -> None:
        del self._timers[name]
        self.run_soon(self._run(name))

    def _schedule_again(self, name: str) -> None:
        """Replaces a pending run, because its interval has changed. A job that runs is scheduled at its end."""
        if name in self._timers:
            self._timers[name].cancel()
            self._schedule(name)

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
            while not log.is_closed and log.log_dir.error is None and log.enforce_retention():  # noqa: ASYNC110  a turn
                await asyncio.sleep(0)  # renaming the files of some segments takes a millisecond or more

    async def _checkpoint(self) -> None:
        await self._runtime.run_in_background(self._logs.checkpoint)

    async def _flush(self) -> None:
        for log in self._logs.flush_due():
            await self._runtime.run_in_background(log.flush)

    async def _expire_producers(self) -> None:
        for log in list(self._logs.all()):
            log.expire_producers()

    async def _remove_deleted(self) -> None:
        if self._logs.has_deleted:
            await self._runtime.run_in_background(self._logs.remove_deleted)
