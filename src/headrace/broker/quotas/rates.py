"""Measures rates as Kafka does, and computes for how long a client has to wait. No I/O; the caller passes the time.

A :class:`WindowedRate` counts in samples. A sample covers ``window_ms`` from its first value on. So samples need not
follow each other without a gap: while nothing is recorded, there is no sample. A sample counts until ``samples *
window_ms`` after its *last* value. The rate is the sum of all samples that count, per second of the time since the
oldest of them began. A client that has just begun would have a very high rate, so at least ``samples - 1`` windows are
counted:

    samples=4, window_ms=1000     |-- 1 --|      |-- 2 --|-- 3 |
                                  0              1700    2700 3100 = now

    Three samples count. Three whole windows and 100 ms have passed since the first began: the rate is the sum / 3.1 s.
    If sample 1 were missing, one whole window and 400 ms would have passed. Two windows are added: the sum / 3.4 s.

If the rate is above the limit, the client waits until the rate would be the limit if nothing else was recorded. With
the rate R, the limit L and the counted time T, this is (R - L) / L * T.

Values are integers (bytes, nanoseconds, connections), so the sums stay exact.

A :class:`TokenBucket` allows bursts: a client that did nothing for a while may do many things at once, and then has to
wait until it has no debt any more (KIP-599).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.broker.configs.broker_config import BrokerConfig
    from headrace.runtime.clock import Clock

#: A throttle time is an int32 in the protocol.
MAX_THROTTLE_MS = 2**31 - 1
#: How many numbers a past sample has: when it began, when its last value came, and the sum of its values.
_FIELDS = 3


class Windows(NamedTuple):
    """How a rate is measured: ``quota.window.num`` and ``quota.window.size.seconds``."""

    samples: int = 11
    window_ms: int = 1000

    @property
    def least_ms(self) -> int:
        """The shortest time over which a rate is measured."""
        return (self.samples - 1) * self.window_ms

    @property
    def seconds(self) -> float:
        return self.samples * self.window_ms / 1000


def windows_of(config: BrokerConfig, prefix: str) -> Windows:
    """Returns the windows that two settings with this prefix describe."""
    return Windows(config.int(f"{prefix}.num"), config.int(f"{prefix}.size.seconds") * 1000)


class WindowedRate:
    """A rate, and its limit."""

    __slots__ = (
        "_begun_ms", "_change_ms", "_ends_ms", "_least_ms", "_limit", "_oldest_ms", "_past", "_past_total", "_windows",
        "free", "last_ms", "total",
    )  # fmt: skip

    def __init__(self, windows: Windows, limit: float = inf) -> None:
        self._windows = windows
        self._least_ms = windows.least_ms
        #: The samples before the present one, oldest first, with ``_FIELDS`` numbers each.
        self._past = array("q")
        self._past_total = 0
        #: The sum of all samples, as of the last value.
        self.total = 0
        #: When the oldest sample and the present sample began.
        self._oldest_ms = self._begun_ms = 0
        #: When the present sample ends, and when the samples have to change: then, or when the oldest counts no more.
        self._ends_ms = self._change_ms = -1
        #: When the last value was recorded.
        self.last_ms = -1
        self.limit = limit

    @property
    def limit(self) -> float:
        """What is allowed per second."""
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        #: A total of so much is within the limit, whatever the time is.
        self.free = limit * self._least_ms / 1000

    def add(self, value: int, now_ms: int) -> None:
        """Records a value. A negative value takes back what was recorded at the same time."""
        if now_ms >= self._change_ms:
            self._change_samples(now_ms)
        self.total += value
        self.last_ms = now_ms

    def charge(self, value: int, now_ms: int) -> int:
        """Records a value, and returns for how many milliseconds the client has to wait."""
        if now_ms >= self._change_ms:
            self._change_samples(now_ms)
        self.total = total = self.total + value
        self.last_ms = now_ms
        return 0 if total <= self.free else self._throttle_ms(total, now_ms)

    def _throttle_ms(self, total: int, now_ms: int) -> int:
        if self._limit <= 0:
            return MAX_THROTTLE_MS
        throttle_ms = total * 1000 / self._limit - self._counted_ms(now_ms, self._oldest_ms)
        return 0 if throttle_ms < 0.5 else min(MAX_THROTTLE_MS, int(throttle_ms + 0.5))

    def _counted_ms(self, now_ms: int, oldest_ms: int) -> int:
        elapsed_ms = now_ms - oldest_ms
        if elapsed_ms < self._least_ms:
            return self._least_ms + elapsed_ms % self._windows.window_ms
        return max(elapsed_ms, 1)

    def _change_samples(self, now_ms: int) -> None:
        """Begins another sample if the present one has ended, and forgets those that count no more."""
        past, windows = self._past, self._windows
        if now_ms >= self._ends_ms:
            if self._ends_ms >= 0:
                past.extend((self._begun_ms, self.last_ms, self.total - self._past_total))
                self._past_total = self.total
            self._begun_ms, self._ends_ms = now_ms, now_ms + windows.window_ms
        keeps_ms = windows.samples * windows.window_ms
        while past and now_ms - past[1] >= keeps_ms:
            self.total -= past[2]
            self._past_total -= past[2]
            del past[:_FIELDS]
        if past:
            self._oldest_ms = past[0]
            self._change_ms = min(self._ends_ms, past[1] + keeps_ms)
        else:
            self._oldest_ms = self._begun_ms
            self._change_ms = self._ends_ms

    def per_second(self, now_ms: int) -> float:
        """Returns the rate. Changes nothing, so that another thread may call it."""
        past, total, keeps_ms = self._past[:], self.total, self._windows.samples * self._windows.window_ms
        if now_ms - self.last_ms >= keeps_ms:
            return 0.0
        oldest_ms = self._begun_ms
        for at in range(len(past) - _FIELDS, -1, -_FIELDS):
            if now_ms - past[at + 1] < keeps_ms:
                oldest_ms = past[at]
            else:
                total -= past[at + 2]
        return total * 1000 / self._counted_ms(now_ms, oldest_ms)


class TokenBucket:
    """Tokens that come at a rate, up to the number that comes in all windows together. A new bucket is full.

    A client may take more tokens than there are. Then the number is negative, and the client has to wait until it is
    zero again.
    """

    __slots__ = ("_filled_ms", "_tokens", "_windows", "last_ms", "limit")

    def __init__(self, windows: Windows, limit: float, now_ms: int) -> None:
        self._windows = windows
        #: Tokens per second. After a change, the next use fills the bucket at the new rate.
        self.limit = limit
        self._tokens = limit * windows.seconds
        self._filled_ms = now_ms
        #: When tokens were taken last.
        self.last_ms = now_ms

    def tokens(self, now_ms: int) -> float:
        """Returns how many tokens there are. Changes nothing."""
        filled = self._tokens + self.limit * (now_ms - self._filled_ms) / 1000
        return min(self.limit * self._windows.seconds, filled)

    def take(self, count: int, now_ms: int) -> None:
        self._tokens = self.tokens(now_ms) - count
        self._filled_ms = self.last_ms = now_ms

    def throttle_ms(self, now_ms: int) -> int:
        """Returns how long it takes until the number of tokens is not negative."""
        missing = -self.tokens(now_ms)
        if missing <= 0:
            return 0
        return min(MAX_THROTTLE_MS, int(missing / self.limit * 1000 + 0.5))


class WindowedAverage:
    """The average of values over the last one or two windows of 30 seconds, as Kafka's metrics have it by default."""

    __slots__ = ("_begun_ms", "_count", "_earlier_count", "_earlier_sum", "_sum")

    _WINDOW_MS = 30_000

    def __init__(self) -> None:
        self._begun_ms = 0
        self._sum = self._count = self._earlier_sum = self._earlier_count = 0

    def record(self, value: int, now_ms: int) -> None:
        elapsed_ms = now_ms - self._begun_ms
        if elapsed_ms >= self._WINDOW_MS or not self._count:
            is_recent = elapsed_ms < 2 * self._WINDOW_MS
            self._earlier_sum, self._earlier_count = (self._sum, self._count) if is_recent else (0, 0)
            self._begun_ms, self._sum, self._count = now_ms, 0, 0
        self._sum += value
        self._count += 1

    def average(self, now_ms: int) -> float:
        """Returns 0 if there were no values. Changes nothing, so that another thread may call it."""
        elapsed_ms = now_ms - self._begun_ms
        if elapsed_ms >= 2 * self._WINDOW_MS or not self._count:
            return 0.0
        if elapsed_ms >= self._WINDOW_MS:
            return self._sum / self._count
        return (self._sum + self._earlier_sum) / (self._count + self._earlier_count)


class RateLimit:
    """Compares the bytes of the last windows with a limit in bytes per second, for replicas that are copied.

    The time counts from the first window that had bytes. So nothing is free at the begin, unlike for clients.
    """

    def __init__(self, clock: Clock, limit: Callable[[], int], windows: Windows) -> None:
        self._clock = clock
        self._limit = limit
        self._windows = windows.samples
        self._window_ms = windows.window_ms
        #: Each window that had bytes: its number, and how many bytes.
        self._used: deque[list[int]] = deque()
        self._total_bytes = 0

    def record(self, size_bytes: int) -> None:
        number = self._forget_old()
        if not self._used or self._used[-1][0] != number:
            self._used.append([number, 0])
        self._used[-1][1] += size_bytes
        self._total_bytes += size_bytes

    @property
    def is_exceeded(self) -> bool:
        self._forget_old()
        if not self._used:
            return False
        # Since the first window that had bytes. With all windows, ten seconds' worth would pass at once at first.
        elapsed_ms = max(self._clock.monotonic_ms() - self._used[0][0] * self._window_ms, self._window_ms)
        return self._total_bytes * 1000 > self._limit() * elapsed_ms

    def _forget_old(self) -> int:
        number = self._clock.monotonic_ms() // self._window_ms
        while self._used and self._used[0][0] <= number - self._windows:
            self._total_bytes -= self._used.popleft()[1]
        return number
