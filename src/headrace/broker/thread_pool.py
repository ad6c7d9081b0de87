"""A pool of threads for slow functions. The number of threads changes while the pool works."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class RunBlocking(Protocol):
    """Runs a slow function (fsync, for example) on a thread, and returns its result."""

    async def __call__(self, function: Callable[..., T], *arguments: object) -> T: ...


class ThreadPool:
    def __init__(self, loop: AbstractEventLoop, name: str, threads: int) -> None:
        self._loop = loop
        self._name = name
        self._executor = self._new_executor(threads)

    def _new_executor(self, threads: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, thread_name_prefix=self._name)

    def resize(self, threads: int) -> None:
        """Uses another number of threads from now on. Functions that run or wait already are completed by the earlier
        threads."""
        earlier, self._executor = self._executor, self._new_executor(threads)
        earlier.shutdown(wait=False)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._executor, function, *arguments)

    def stop(self) -> None:
        """Takes no more functions. Those that run or wait already are completed."""
        self._executor.shutdown(wait=False)
