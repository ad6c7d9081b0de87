"""Drives the timing wheel from the event loop: one loop timer, armed for the next bucket that is due."""

import asyncio

from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer


class LoopTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._armed: asyncio.TimerHandle | None = None
        self.timer = Timer(clock, on_earlier=self._arm)

    def stop(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _arm(self) -> None:
        self.stop()
        due_ms = self.timer.next_due_ms()
        if due_ms is not None:
            delay_ms = max(0, due_ms - self._clock.monotonic_ms())
            self._armed = self._loop.call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._armed = None
        self.timer.advance()
        self._arm()
