"""Wakes the one task that waits for an event."""

from __future__ import annotations

import asyncio


class Notifier:
    """Connects one waiting task with any number of notifying callers, all on one event loop."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def notify(self) -> None:
        """Wakes the waiting task. Does nothing if no task waits."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, timeout_ms: float) -> None:
        """Waits until :meth:`notify` is called, or until the timeout.

        A notification from before the call is not remembered: the caller checks its condition first.
        """
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, self.notify)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
