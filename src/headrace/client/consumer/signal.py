"""Wakes the one task that waits for something to have happened."""

from __future__ import annotations

import asyncio


class Signal:
    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_ms: float) -> None:
        """Until somebody notifies, or the time is up. What happened before is not waited for: look first."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, self.notify)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
