"""Decides when to try again, and when to stop. No I/O; time is passed in.

The n-th delay is ``initial × 2ⁿ``, but at most the maximum, times a random factor within ±20 %. The random factor keeps
the clients of a restarted broker from connecting all at once (KIP-144, KIP-580).
"""

from collections.abc import Callable

from headrace.client.own_random import random
from headrace.runtime.clock import Clock

JITTER = 0.2
_MAX_DOUBLINGS = 32


class Backoff:
    """Computes delays that grow with the number of failures."""

    __slots__ = ("_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: int, max_ms: int, *, random: Callable[[], float] = random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._random = random

    def delay_ms(self, attempts: int) -> float:
        """Returns the delay after this many failures; the first failure is 1."""
        assert attempts >= 1
        plain_ms = min(self._max_ms, self._initial_ms * (1 << min(attempts - 1, _MAX_DOUBLINGS)))
        return min(self._max_ms, plain_ms * (1 - JITTER + 2 * JITTER * self._random()))


class Deadline:
    """The time at which a call gives up."""

    __slots__ = ("_at_ms", "_clock", "timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self.timeout_ms = timeout_ms
        self._at_ms = clock.monotonic_ms() + timeout_ms

    def left_ms(self) -> float:
        return max(0, self._at_ms - self._clock.monotonic_ms())

    def has_passed(self) -> bool:
        return self._clock.monotonic_ms() >= self._at_ms
