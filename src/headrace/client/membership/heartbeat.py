"""When a member must send a heartbeat, and when it was away from poll() for too long. No I/O, time passed in."""

from headrace.runtime.clock import Clock


class Heartbeat:
    def __init__(self, clock: Clock, *, interval_ms: int, max_poll_interval_ms: int) -> None:
        self._clock = clock
        self.interval_ms = interval_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self._sent_ms = self._polled_ms = clock.monotonic_ms()
        self._is_polling = False

    def sent(self) -> None:
        self._sent_ms = self._clock.monotonic_ms()

    def poll_began(self) -> None:
        self._is_polling = True
        self._polled_ms = self._clock.monotonic_ms()

    def poll_ended(self) -> None:
        self._is_polling = False
        self._polled_ms = self._clock.monotonic_ms()

    def is_due(self) -> bool:
        return self._clock.monotonic_ms() - self._sent_ms >= self.interval_ms

    def is_away(self) -> bool:
        """Whether the user has not come back to poll() for ``max.poll.interval.ms``."""
        return not self._is_polling and self._clock.monotonic_ms() - self._polled_ms >= self._max_poll_interval_ms

    def next_ms(self) -> int:
        """Until there is something to do: a heartbeat is due, or the user has been away for too long."""
        now_ms = self._clock.monotonic_ms()
        due_ms = self._sent_ms + self.interval_ms
        away_ms = due_ms if self._is_polling else self._polled_ms + self._max_poll_interval_ms
        return max(0, min(due_ms, away_ms) - now_ms)
