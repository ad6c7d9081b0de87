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

    def resize(self, io_threads: int) -> None:
        """Uses another number of threads for slow operations from now on. Those that run or wait already are completed
        by the earlier threads."""
        earlier, self._threads = self._threads, _pool(io_threads)
        earlier.shutdown(wait=False)

    async def run_blocking(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a slow function, such as fsync or compaction, on a thread."""
        return await self.loop.run_in_executor(self._threads, function, *arguments)

    def stop(self) -> None:
        self._loop_timer.stop()
        self._threads.shutdown(wait=False)


def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="headrace-io")
