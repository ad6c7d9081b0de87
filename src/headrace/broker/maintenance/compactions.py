"""Runs the log cleaner: up to ``log.cleaner.threads`` logs are compacted at the same time, each on its own thread.

The settings ``log.cleaner.*`` change while compactions run. More threads begin at once with the next logs that are due;
if there are fewer threads, the surplus threads complete their log and begin no other. A new rate is in force at once,
also for a thread that waits because of the earlier rate. New sizes of buffers count for the logs that begin afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from headrace.broker.thread_pool import ThreadPool

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.broker.runtime import BrokerRuntime
    from headrace.log.compaction.cleaner import Cleaner, CleanerConfig
    from headrace.log.compaction.plan import CleaningPlan
    from headrace.log.log_manager import LogManager
    from headrace.log.partition_log import PartitionLog

_THREADS = "log.cleaner.threads"


class Compactions:
    def __init__(
        self, config: BrokerConfig, runtime: BrokerRuntime, logs: LogManager, *, is_stopped: Callable[[], bool]
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._logs = logs
        self._is_stopped = is_stopped
        self._settings_changed = asyncio.Event()
        self._has_failed = False
        config.on_any_change(self._change_settings)

    @cached_property
    def cleaner(self) -> Cleaner:
        """Made and imported by the first compaction, so that a start does not pay for it."""
        from headrace.log.compaction.cleaner import Cleaner

        return Cleaner(self._runtime.clock, self._cleaner_config())

    @cached_property
    def _threads(self) -> ThreadPool:
        return ThreadPool(self._runtime.loop, "headrace-cleaner", max(1, self._config.int(_THREADS)))

    async def run(self) -> None:
        """Compacts logs until no log is dirty enough, or one cannot be compacted."""
        if "cleaner" not in self.__dict__:  # the imports take 20 ms, so a thread makes them
            await self._runtime.run_in_background(import_module, "headrace.log.compaction.cleaner")
        running: set[asyncio.Task[None]] = set()
        self._has_failed = False
        try:
            while self._begin(running) or running:
                self._settings_changed.clear()
                changed = self._runtime.loop.create_task(self._settings_changed.wait())
                ended, _ = await asyncio.wait({*running, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                for task in ended & running:
                    task.result()
                running -= ended
        finally:
            if running:
                await asyncio.wait(running)

    def _begin(self, running: set[asyncio.Task[None]]) -> bool:
        """Begins with the next logs that are due, as long as there are threads."""
        cleaner, before = self.cleaner, len(running)
        while not (self._is_stopped() or self._has_failed) and len(running) < self._config.int(_THREADS):
            log = cleaner.next_to_clean(self._logs.all())
            plan = None if log is None else cleaner.plan(log)
            if log is None or plan is None:
                break
            running.add(self._runtime.loop.create_task(self._compact(log, plan)))
        return len(running) > before

    async def _compact(self, log: PartitionLog, plan: CleaningPlan) -> None:
        cleaner = self.cleaner
        try:
            cleaned = await self._threads.run(cleaner.build, plan, self._is_stopped)
        except Exception as error:  # noqa: BLE001  the cleaner decides what it means for the log
            self._has_failed = True
            cleaner.abort(log, error)
        else:
            cleaner.commit(log, cleaned)

    def stop(self) -> None:
        """Ends the threads. All compactions have ended."""
        if "_threads" in self.__dict__:
            self._threads.stop()

    def _change_settings(self, names: frozenset[str]) -> None:
        if not any(name.startswith("log.cleaner.") for name in names):
            return
        if "cleaner" in self.__dict__:
            self.cleaner.config = self._cleaner_config()
        if _THREADS in names and "_threads" in self.__dict__:
            self._threads.resize(max(1, self._config.int(_THREADS)))
        self._settings_changed.set()

    def _cleaner_config(self) -> CleanerConfig:
        from headrace.log.compaction.cleaner import CleanerConfig

        config = self._config
        return CleanerConfig(
            threads=max(1, config.int(_THREADS)),
            dedupe_buffer_bytes=config.int("log.cleaner.dedupe.buffer.size"),
            load_factor=config.float("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=config.int("log.cleaner.io.buffer.size"),
            io_max_bytes_per_second=config.float("log.cleaner.io.max.bytes.per.second"),
        )
