"""The controller's event queue: one queue, one consumer, first in, first out. Records how long each event waited and
took.

Because there is only one consumer, no two events change the controller's state at the same time, and no lock is needed.
An event that fails is logged, and the next event is processed.
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

#: How many times are kept per kind of event, for quantiles.
SAMPLE = 256
#: How long ``stop`` waits for the event in progress. Without a connection to ZooKeeper, an event may never end.
_LAST_EVENT_S = 1.0


class EventTime(NamedTuple):
    queued_ns: int
    processed_ns: int


class EventTimes:
    """For one kind of event: how many were processed, and how long the latest ones waited and took."""

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
        """
        :param process: processes an event.
        :param preempt: is called with each event that will not be processed.
        """
        self._process = process
        self._preempt = preempt
        self._now_ns = now_ns
        self._waiting: deque[tuple[int, Event]] = deque()
        self._is_filled = asyncio.Event()
        self._is_stopped = False
        self._consumer: asyncio.Task[None] | None = None
        #: The event that is being processed.
        self.current: Event | None = None
        #: The times of each kind of event, by its name.
        self.times: defaultdict[str, EventTimes] = defaultdict(EventTimes)

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        assert self._consumer is None, "the event queue was started before"
        self._consumer = asyncio.create_task(self._consume(), name="controller-event-thread")

    def put(self, event: Event) -> None:
        if self._is_stopped:
            self._preempt(event)
            return
        self._waiting.append((self._now_ns(), event))
        self._is_filled.set()

    def clear_and_put(self, event: Event) -> None:
        """Preempts all waiting events and puts one new event into the queue."""
        waiting, self._waiting = self._waiting, deque()
        self.put(event)
        for _, cleared in waiting:
            self._preempt(cleared)

    async def stop(self) -> None:
        """Lets the event in progress finish, and cancels it if it takes too long. All waiting events are preempted."""
        if self._is_stopped:
            return
        self.clear_and_put(ShutdownEventThread())
        self._is_stopped = True
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
            started_ns = self._now_ns()
            self.current = event
            try:
                await self._process(event)
            except asyncio.CancelledError:
                self._preempt(event)
                raise
            except Exception:
                logger.exception("the controller could not process the event %s", event)
                self._preempt(event)
            finally:
                self.current = None
            self.times[event.name].add(EventTime(started_ns - put_ns, self._now_ns() - started_ns))
