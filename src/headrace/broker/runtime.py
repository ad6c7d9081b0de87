"""The event loop, the clock, the timer, the threads and the loggers that all parts of a broker share.

=====================  =============================================================================================
``num.io.threads``     work that a request or a replica waits for: fsync, password checks, copies between folders
``background.threads`` work that nobody waits for: flushes by time, and the removal of deleted files
two more threads       decompressing and reading the records of a batch: one for batches with very many records
=====================  =============================================================================================

Compaction has threads of its own (``compactions.py``), and so have connections with TLS (``network/processor.py``).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from headrace.broker.configs.loggers import Loggers
from headrace.broker.thread_pool import ThreadPool
from headrace.runtime.clock import Clock
from headrace.runtime.loop_timer import LoopTimer

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig

T = TypeVar("T")

#: Reading 50,000 records takes about 75 ms: 200,000 took 300 ms.
MANY_RECORDS = 50_000


class BrokerRuntime:
    def __init__(self, loop: AbstractEventLoop, clock: Clock, *, io_threads: int, background_threads: int = 1) -> None:
        self.loop = loop
        self.clock = clock
        self._loop_timer = LoopTimer(loop, clock)
        self.timer = self._loop_timer.timer
        self.loggers = Loggers()
        self.io_threads = ThreadPool(loop, "headrace-io", io_threads)
        self.background_threads = ThreadPool(loop, "headrace-background", background_threads)
        self._record_thread = ThreadPool(loop, "headrace-records", 1)
        self._many_records_thread = ThreadPool(loop, "headrace-many-records", 1)

    @classmethod
    def of_config(cls, loop: AbstractEventLoop, clock: Clock, config: BrokerConfig) -> BrokerRuntime:
        """Makes a runtime whose numbers of threads follow the settings."""
        runtime = cls(
            loop,
            clock,
            io_threads=config.int("num.io.threads"),
            background_threads=config.int("background.threads"),
        )
        config.on_change("num.io.threads", lambda count: runtime.io_threads.resize(cast(int, count)))
        config.on_change("background.threads", lambda count: runtime.background_threads.resize(cast(int, count)))
        return runtime

    async def run_blocking(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a slow function that somebody waits for, such as fsync, on a thread."""
        return await self.io_threads.run(function, *arguments)

    async def run_in_background(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a slow function that nobody waits for on a thread."""
        return await self.background_threads.run(function, *arguments)

    async def read_records(self, record_count: int, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function that reads the records of a batch, on a thread, one after the other.

        A batch of a few kilobytes may take a hundred megabytes when it is decompressed, and many seconds if it has
        millions of records. So batches with very many records have a thread of their own, and the others do not wait
        for them. Two batches at most are in memory at a time, and they use the memory of two threads: the C library
        keeps freed memory for each thread.

        :param record_count: what the header of the batch says. A batch with more records is refused.
        """
        thread = self._many_records_thread if record_count > MANY_RECORDS else self._record_thread
        return await thread.run(function, *arguments)

    def stop(self) -> None:
        self._loop_timer.stop()
        for threads in (self._record_thread, self._many_records_thread, self.background_threads, self.io_threads):
            threads.stop()
        self.loggers.restore()
