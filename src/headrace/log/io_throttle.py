"""Limits the bytes per second that slow work on threads reads and writes: compaction, moves between data folders.

All threads that share a throttle share its rate. The rate is asked for again while a thread waits, so a change of the
setting also ends a long wait that the earlier rate has caused. Time in which nothing is read does not count as credit.
"""

from collections.abc import Callable
from threading import Lock

from headrace.runtime.clock import Clock

#: A waiting thread looks at the rate, and whether to stop, this often.
_LOOK_AGAIN_S = 0.25


def _never() -> bool:
    return False


class IoThrottle:
    def __init__(self, bytes_per_second: Callable[[], float], clock: Clock, sleep: Callable[[float], object]) -> None:
        """
        :param sleep: waits for the seconds that it is given. A true result ends the waiting of the thread.
        """
        self._bytes_per_second = bytes_per_second
        self._clock, self._sleep = clock, sleep
        self._lock = Lock()
        self._spent_bytes = 0
        #: How many bytes the rate has allowed, up to the time of the last update.
        self._allowed_bytes = 0.0
        self._updated_ms = clock.monotonic_ms()

    def spend(self, size_bytes: int, should_stop: Callable[[], bool] = _never) -> None:
        """Counts bytes, and waits until the rate allows them, or until ``should_stop``."""
        with self._lock:
            self._update()
            self._allowed_bytes = min(self._allowed_bytes, self._spent_bytes)
            self._spent_bytes += size_bytes
            end = self._spent_bytes
        while (wait_s := self._seconds_until(end)) >= 0.001 and not should_stop():
            if self._sleep(min(wait_s, _LOOK_AGAIN_S)):
                return

    def _seconds_until(self, end: int) -> float:
        with self._lock:
            self._update()
            return (end - self._allowed_bytes) / self._bytes_per_second()

    def _update(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._allowed_bytes += (now_ms - self._updated_ms) / 1000 * self._bytes_per_second()
        self._updated_ms = now_ms
