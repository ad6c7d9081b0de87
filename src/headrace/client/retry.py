"""When to try again, and when to stop: no I/O, time passed in.

The n-th delay is ``initial × 2ⁿ``, at most ``most``, times a random factor within ±20 %, so that the clients of a
broker that comes back do not all arrive at once (KIP-144, KIP-580).
"""

from collections.abc import Callable
from random import random

from headrace.runtime.clock import Clock

JITTER = 0.2
_MOST_DOUBLINGS = 32


class Backoff:
    __slots__ = ("_initial_ms", "_most_ms", "_random")

    def __init__(self, initial_ms: int, most_ms: int, *, random: Callable[[], float] = random) -> None:
        self._initial_ms = min(initial_ms, most_ms)
        self._most_ms = most_ms
        self._random = random

    def delay_ms(self, attempts: int) -> float:
        """How long to wait after that many failures, the first being 1."""
        assert attempts >= 1
        plain_ms = min(self._most_ms, self._initial_ms * (1 << min(attempts - 1, _MOST_DOUBLINGS)))
        return min(self._most_ms, plain_ms * (1 - JITTER + 2 * JITTER * self._random()))


class Deadline:
    """A moment by which something is to be done."""

    __slots__ = ("_at_ms", "_clock", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self._at_ms = clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        return max(0, self._at_ms - self._clock.monotonic_ms())

    def has_passed(self) -> bool:
        return self._clock.monotonic_ms() >= self._at_ms
