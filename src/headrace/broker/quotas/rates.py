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

NS_PER_MS = 1_000_000
#: A throttle time is an int32 in the protocol.
MAX_THROTTLE_MS = 2**31 - 1
#: More than any sum of a rate.
_NO_LIMIT = 2**62
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
    """A rate, and its limit.

    ``throttling.py`` records most values by itself, because a call takes longer than the addition: it changes ``total``
    and ``last_ns``, after :meth:`change_samples` if ``change_ns`` has come. These are nanoseconds for the same reason:
    the clock gives them without a division. Everything else is exact to the millisecond, as in Kafka.
    """

    __slots__ = (
        "_begun_ms", "_ends_ms", "_least_ms", "_limit", "_oldest_ms", "_past", "_past_total", "_windows", "change_ns",
        "free", "last_ns", "total",
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
        #: When the present sample ends.
        self._ends_ms = -1
        #: When the samples have to change: the present one ends, or the oldest counts no more.
        self.change_ns = -1
        #: When the last value was recorded.
        self.last_ns = -1
        self.limit = limit

    @property
    def limit(self) -> float:
        """The limit per second."""
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        #: A total of so much is within the limit, whatever the time is. An integer, as totals are: comparing an integer
        #: with a float takes longer.
        self.free = int(min(limit * self._least_ms / 1000, _NO_LIMIT))

    def add(self, value: int, now_ms: int) -> None:
        """Records a value. A negative value takes back what was recorded at the same time."""
        now_ns = now_ms * NS_PER_MS
        if now_ns >= self.change_ns:
            self.change_samples(now_ns)
        self.total += value
        self.last_ns = now_ns

    def charge(self, value: int, now_ms: int) -> int:
        """Records a value, and returns for how many milliseconds the client has to wait."""
        self.add(value, now_ms)
        return self.throttle_ms(now_ms)

    @property
    def last_ms(self) -> int:
        """The time of the last recorded value."""
        return self.last_ns // NS_PER_MS

    def throttle_ms(self, now_ms: int) -> int:
        """Returns for how many milliseconds a client has to wait that has just recorded a value."""
        if self.total <= self.free:
            return 0
        if self._limit <= 0:
            return MAX_THROTTLE_MS
        throttle_ms = self.total * 1000 / self._limit - self._counted_ms(now_ms, self._oldest_ms)
        return 0 if throttle_ms < 0.5 else min(MAX_THROTTLE_MS, int(throttle_ms + 0.5))

    def _counted_ms(self, now_ms: int, oldest_ms: int) -> int:
        elapsed_ms = now_ms - oldest_ms
        if elapsed_ms < self._least_ms:
            return self._least_ms + elapsed_ms % self._windows.window_ms
        return max(elapsed_ms, 1)

    def change_samples(self, now_ns: int) -> None:
        """Begins another sample if the present one has ended, and forgets those that count no more."""
        now_ms, past, windows = now_ns // NS_PER_MS, self._past, self._windows
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
            self.change_ns = min(self._ends_ms, past[1] + keeps_ms) * NS_PER_MS
        else:
            self._oldest_ms = self._begun_ms
            self.change_ns = self._ends_ms * NS_PER_MS

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
