"""Where time comes from.

Two readings, never mixed: wall time stamps records and decides retention, and may jump when the host's clock is set;
monotonic time measures delays, and never goes back. Whoever needs time is given a Clock; tests pass one that moves
only when told (``headrace.testing.ManualClock``).
"""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment of the past."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
