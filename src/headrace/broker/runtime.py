"""The event loop, the clock, the timer and the threads that all parts of a broker share."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.runtime.clock import Clock
from headrace.runtime.loop_timer import LoopTimer

T = TypeVar("T")


class BrokerRuntime:
    def __init__(self, loop: AbstractEventLoop, clock: Clock, *, io_threads: int) -> None:
        """
        :param io_threads: how many threads run slow file operations (``num.io.threads``).
        """
        self.loop = loop
        self.clock = clock
        self._loop_timer = LoopTimer(loop, clock)
        self.timer = self._loop_timer.timer
        self._threads = _pool(io_threads)
        self._record_thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-records")

    def resize(self, io_threads: int) -> None:
        """Uses another number of threads for slow operations from now on. Those that run or wait already are completed
        by the earlier threads."""
        earlier, self._threads = self._threads, _pool(io_threads)
        earlier.shutdown(wait=False)

    async def run_blocking(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a slow function, such as fsync or compaction, on a thread."""
        return await self.loop.run_in_executor(self._threads, function, *arguments)

    async def read_records(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function that reads the records of a batch, on a thread, one after the other.

        A batch of a few kilobytes may take a hundred megabytes when it is decompressed. So only one is in memory at a
        time, and they all use the memory of one thread: the C library keeps freed memory for each thread.
        """
        return await self.loop.run_in_executor(self._record_thread, function, *arguments)

    def stop(self) -> None:
        self._loop_timer.stop()
        self._record_thread.shutdown(wait=False)
        self._threads.shutdown(wait=False)


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="headrace-io")
