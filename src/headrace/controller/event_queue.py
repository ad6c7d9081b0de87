"""The controller's events: one queue, one consumer, first in, first out. How long each waited and took is kept.

So nothing that the controller knows is changed by two at once, without a lock, and what happened first has its effect
first. An event that fails is logged, and the next one has its turn.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from logging import getLogger
from time import perf_counter_ns
from typing import NamedTuple

from headrace.controller.events import Event, ShutdownEventThread

logger = getLogger(__name__)

#: How many of an event's times are kept, for quantiles.
SAMPLE = 256
#: Without a connection to the tree an event may take for ever.
_LAST_EVENT_S = 1.0


class EventTime(NamedTuple):
    queued_ns: int
    processed_ns: int


class EventTimes:
    """Of one kind of event: how many there were, and how long the last ones waited and took."""

    __slots__ = ("count", "recent")

    def __init__(self) -> None:
        self.count = 0
        self.recent: deque[EventTime] = deque(maxlen=SAMPLE)

    def add(self, time: EventTime) -> None:
        self.count += 1
        self.recent.append(time)


class EventQueue:
    def __init__(
        self,
        process: Callable[[Event], Awaitable[None]],
        preempt: Callable[[Event], None],
        *,
        now_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        """``process`` handles an event; ``preempt`` is told of each that will not be."""
        self._process = process
        self._preempt = preempt
        self._now_ns = now_ns
        self._waiting: deque[tuple[int, Event]] = deque()
        self._is_filled = asyncio.Event()
        self._is_closed = False
        self._consumer: asyncio.Task[None] | None = None
        #: The one that is being handled.
        self.current: Event | None = None
        #: By the name of the event.
        self.times: defaultdict[str, EventTimes] = defaultdict(EventTimes)

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        assert self._consumer is None, "started already"
        self._consumer = asyncio.create_task(self._consume(), name="controller-event-thread")

    def put(self, event: Event) -> None:
        if self._is_closed:
            self._preempt(event)
            return
        self._waiting.append((self._now_ns(), event))
        self._is_filled.set()

    def clear_and_put(self, event: Event) -> None:
        """What has happened so far matters no more."""
        waiting, self._waiting = self._waiting, deque()
        self.put(event)
        for _, cleared in waiting:
            self._preempt(cleared)

    async def close(self) -> None:
        """The event that is being handled is the last one; one that takes long is broken off."""
        if self._is_closed:
            return
        self.clear_and_put(ShutdownEventThread())
        self._is_closed = True
        if self._consumer is not None:
            await asyncio.wait([self._consumer], timeout=_LAST_EVENT_S)
            self._consumer.cancel()
            await asyncio.wait([self._consumer])

    async def _consume(self) -> None:
        while True:
            while not self._waiting:
                self._is_filled.clear()
                await self._is_filled.wait()
            put_ns, event = self._waiting.popleft()
            if isinstance(event, ShutdownEventThread):
                return
            begun_ns = self._now_ns()
            self.current = event
            try:
                await self._process(event)
            except asyncio.CancelledError:
                self._preempt(event)
                raise
            except Exception:
                logger.exception("the controller could not handle %s", event)
                self._preempt(event)
            finally:
                self.current = None
            self.times[event.name].add(EventTime(begun_ns - put_ns, self._now_ns() - begun_ns))
