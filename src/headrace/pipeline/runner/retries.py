"""Decides when a version that failed is tried again.

The first wait is 0.5 s, and each further wait is twice as long, up to 30 s. The waits begin with 0.5 s again if the
version has committed something since it started, or if it ran for five seconds before a transient failure. An unknown
failure is retried five times in a row, a probably permanent one once, a permanent one never.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.pipeline.serving.catalog import VersionKey
from headrace.pipeline.version.failures import FailureKind
from headrace.runtime.clock import Clock

FIRST_BACKOFF_MS = 500
LAST_BACKOFF_MS = 30_000
STEADY_MS = 5_000
UNKNOWN_TRIES = 5
#: How often in a row a failure of each kind is retried. A kind that is not here is retried without limit.
MAX_TRIES = {
    FailureKind.PERMANENT: 0,
    FailureKind.PROBABLY_PERMANENT: 1,
    FailureKind.OUT_OF_MEMORY: 1,
    FailureKind.UNKNOWN: UNKNOWN_TRIES,
}


@dataclass(frozen=True)
class _Failure:
    """:param due_ms: when to try again, on the monotonic clock; None for never."""

    tries: int
    due_ms: int | None


class Retries:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[VersionKey, _Failure] = {}

    def failed(self, key: VersionKey, kind: FailureKind, ran_ms: int = 0, *, has_committed: bool = False) -> int | None:
        """Records a failure and returns the wait until the next try in milliseconds; None if there is no next try.

        :param ran_ms: how long the version ran before it failed.
        :param has_committed: whether it committed anything in that time.
        """
        before = self._failures.get(key)
        # A failure of unknown kind may come late every time, so its running time does not reset the count.
        is_steady = has_committed or (kind is FailureKind.TRANSIENT and ran_ms >= STEADY_MS)
        tries = 1 if before is None or is_steady else before.tries + 1
        may_retry = kind not in MAX_TRIES or tries <= MAX_TRIES[kind]
        wait_ms = min(LAST_BACKOFF_MS, FIRST_BACKOFF_MS << min(tries - 1, 10)) if may_retry else None
        self._failures[key] = _Failure(tries, None if wait_ms is None else self._clock.monotonic_ms() + wait_ms)
        return wait_ms

    def is_due(self, key: VersionKey) -> bool:
        """Also True for a version that failed in another process only: this process may succeed."""
        failure = self._failures.get(key)
        return failure is None or (failure.due_ms is not None and self._clock.monotonic_ms() >= failure.due_ms)

    def forget(self, key: VersionKey) -> None:
        self._failures.pop(key, None)

    def keep_only(self, known: Collection[VersionKey]) -> None:
        self._failures = {key: failure for key, failure in self._failures.items() if key in known}
