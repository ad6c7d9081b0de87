"""Decides when a member sends a heartbeat, and when ``poll()`` is overdue. No I/O; time is passed in."""

from logging import getLogger
from typing import Self

from headrace.client.config import ConsumerConfig
from headrace.runtime.clock import Clock

logger = getLogger(__name__)


class HeartbeatSchedule:
    """The times of the last heartbeat and of the last poll."""

    def __init__(self, clock: Clock, *, interval_ms: int, max_poll_interval_ms: int) -> None:
        self._clock = clock
        self.interval_ms = interval_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self._sent_ms = self._polled_ms = clock.monotonic_ms()
        self._is_polling = False

    @classmethod
    def of(cls, clock: Clock, config: ConsumerConfig) -> Self:
        """Makes the schedule of a consumer with these options."""
        return cls(clock, interval_ms=config.heartbeat_interval_ms, max_poll_interval_ms=config.max_poll_interval_ms)

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

    def is_poll_overdue(self) -> bool:
        """Whether the user has not called ``poll()`` for ``max.poll.interval.ms``."""
        return not self._is_polling and self._clock.monotonic_ms() - self._polled_ms >= self._max_poll_interval_ms

    def warn_overdue(self, group_id: str) -> None:
        logger.warning(
            "poll() was not called for max.poll.interval.ms (%d): the consumer leaves the group %r. Call poll() more "
            "often, lower max.poll.records, or raise max.poll.interval.ms",
            self._max_poll_interval_ms,
            group_id,
        )

    def next_ms(self) -> int:
        """Returns the time until a heartbeat is due, or until ``poll()`` is overdue."""
        now_ms = self._clock.monotonic_ms()
        due_ms = self._sent_ms + self.interval_ms
        overdue_ms = due_ms if self._is_polling else self._polled_ms + self._max_poll_interval_ms
        return max(0, min(due_ms, overdue_ms) - now_ms)
