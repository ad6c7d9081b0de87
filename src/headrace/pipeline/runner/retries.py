"""When a version that failed is tried again.

After 0.5 s, then twice as long each time, up to 30 s. One that has committed something since it started begins with the
shortest wait again, and so does one that ran for five seconds before something was away. A failure that nobody knows is
tried five times in a row, one that will hardly pass once, one that will not pass not at all.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.pipeline.version.failures import Verdict
from headrace.runtime.clock import Clock

FIRST_BACKOFF_MS = 500
LAST_BACKOFF_MS = 30_000
STEADY_MS = 5_000
UNKNOWN_TRIES = 5
#: How often in a row a failure is tried again; what is not here is tried for as long as it takes.
MOST_TRIES = {Verdict.PERMANENT: 0, Verdict.UNLIKELY: 1, Verdict.EXHAUSTED: 1, Verdict.UNKNOWN: UNKNOWN_TRIES}

Key = tuple[str, int]


@dataclass(frozen=True)
class _Trouble:
    """:param due_ms: on the monotonic clock; None if it is not tried again."""

    tries: int
    due_ms: int | None


class Retries:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._troubles: dict[Key, _Trouble] = {}

    def failed(self, key: Key, verdict: Verdict, ran_ms: int = 0, *, has_moved: bool = False) -> int | None:
        """In how many milliseconds it is due again; None if it is not.

        :param ran_ms: how long it ran before.
        :param has_moved: whether it has committed anything in that time.
        """
        before = self._troubles.get(key)
        # What nobody knows may take its time to fail, and fail for ever.
        is_steady = has_moved or (verdict is Verdict.TRANSIENT and ran_ms >= STEADY_MS)
        tries = 1 if before is None or is_steady else before.tries + 1
        may_pass = verdict not in MOST_TRIES or tries <= MOST_TRIES[verdict]
        wait_ms = min(LAST_BACKOFF_MS, FIRST_BACKOFF_MS << min(tries - 1, 10)) if may_pass else None
        self._troubles[key] = _Trouble(tries, None if wait_ms is None else self._clock.monotonic_ms() + wait_ms)
        return wait_ms

    def is_due(self, key: Key) -> bool:
        """Also if nothing is known of it: it failed in another process, and this one may have more luck."""
        trouble = self._troubles.get(key)
        return trouble is None or (trouble.due_ms is not None and self._clock.monotonic_ms() >= trouble.due_ms)

    def forget(self, key: Key) -> None:
        self._troubles.pop(key, None)

    def forget_but(self, known: Collection[Key]) -> None:
        self._troubles = {key: trouble for key, trouble in self._troubles.items() if key in known}
