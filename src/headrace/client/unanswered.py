"""The requests of a connection that wait for their answers, and the timer that watches their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from headrace.client.throttle import raw_throttle_ms
from headrace.protocol.api import Api
from headrace.protocol.wire.client_codec import decode_response

_NEVER = inf
#: The timers of an event loop have a resolution of one millisecond.
_TIMER_ERROR_S = 0.001


class UnansweredRequest(NamedTuple):
    """A request that waits for its answer."""

    api: Api
    version: int
    is_raw: bool
    answer: asyncio.Future[Any]
    timeout_ms: float
    #: In the loop's time.
    deadline: float

    def read(self, frame: memoryview) -> tuple[Any, float]:
        """Returns the decoded answer, None for a raw one, and its throttle time in milliseconds.

        :raises BadResponse: if the bytes are not an answer to the request.
        """
        if self.is_raw:
            return None, raw_throttle_ms(self.api, self.version, frame)
        answer = decode_response(self.api, self.version, bytes(frame))
        throttle_time = getattr(answer, "throttle_time", None)
        return answer, throttle_time.total_seconds() * 1000 if throttle_time else 0


class DeadlineTimer:
    """One timer for all requests. It fires at the first deadline, and is set again if that request is answered."""

    __slots__ = ("_loop", "_on_expired", "_timer", "_unanswered", "due")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        unanswered: dict[int, UnansweredRequest],
        on_expired: Callable[[int, UnansweredRequest], None],
    ) -> None:
        """
        :param unanswered: the requests by correlation id.
        :param on_expired: called with the first request whose deadline has passed.
        """
        self._loop = loop
        self._unanswered = unanswered
        self._on_expired = on_expired
        self._timer: asyncio.TimerHandle | None = None
        self.due = _NEVER

    def set(self, due: float) -> None:
        self.cancel()
        self._timer = self._loop.call_at(due, self.check)
        self.due = due

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.due = None, _NEVER

    def postpone(self, by_s: float) -> None:
        """Gives all requests more time."""
        for correlation_id, request in self._unanswered.items():
            self._unanswered[correlation_id] = request._replace(deadline=request.deadline + by_s)

    def check(self) -> None:
        """Handles the first deadline if it has passed, and sets the timer again if not."""
        self.cancel()
        if not self._unanswered:
            return
        correlation_id, first = min(self._unanswered.items(), key=lambda item: item[1].deadline)
        if first.deadline > self._loop.time() + _TIMER_ERROR_S:
            self.set(first.deadline)
        else:
            self._on_expired(correlation_id, first)
