"""Runs a timer on an event loop: keeps one loop timer set for the time at which the next bucket is due."""

from collections.abc import Callable
from typing import Protocol

from headrace.runtime.clock import Clock
from headrace.runtime.timer import Timer


class _Handle(Protocol):
    def cancel(self) -> None: ...


class _Loop(Protocol):
    """The part of an asyncio loop that is needed here. The core must not import asyncio."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> _Handle: ...


class LoopTimer:
    def __init__(self, loop: _Loop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._armed: _Handle | None = None
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
