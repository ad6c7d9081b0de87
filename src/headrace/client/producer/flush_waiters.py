"""Lets callers of ``flush()`` wait until all batches that were buffered before are settled."""

import asyncio
from collections.abc import Callable

from headrace.client.producer.accumulator import Accumulator


class FlushWaiters:
    """The callers that wait in ``flush()``, on the producer's event loop."""

    def __init__(self, accumulator: Accumulator, wake_sender: Callable[[], None]) -> None:
        self._accumulator = accumulator
        self._wake_sender = wake_sender
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    async def flush(self) -> None:
        """Makes all batches ready without delay, and waits until they are settled."""
        with self._accumulator.lock:
            mark = self._accumulator.unfinished.begin_flush()
        try:
            while not self._is_flushed(mark):
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append((mark, waiter))
                self._wake_sender()
                await waiter
        finally:
            with self._accumulator.lock:
                self._accumulator.unfinished.end_flush()

    def batches_settled(self) -> None:
        """Wakes the callers whose batches are all settled. The lock is not held."""
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for mark, waiter in waiters:
            if waiter.done():
                continue
            if self._is_flushed(mark):
                waiter.set_result(None)
            else:
                self._waiters.append((mark, waiter))

    def _is_flushed(self, mark: int) -> bool:
        with self._accumulator.lock:
            return self._accumulator.unfinished.is_flushed(mark)
