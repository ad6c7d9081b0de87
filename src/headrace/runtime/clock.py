"""Gives the time. Code that needs the time gets a Clock, so that a test can pass a clock that it moves itself
(``headrace.testing.ManualClock``).

There are two kinds of time, which are never mixed. Wall time stamps records and decides retention; it may jump when the
host's clock is set. Monotonic time measures delays, and never goes back.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since a fixed moment in the past."""
        ...

    def monotonic_ns(self) -> int:
        """The same in nanoseconds, for code that cannot wait for a division."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.perf_counter_ns() // 1_000_000

    #: The moments of a request are of ``perf_counter_ns``, too. So a quota need not read the clock once more.
    monotonic_ns = staticmethod(time.perf_counter_ns)
