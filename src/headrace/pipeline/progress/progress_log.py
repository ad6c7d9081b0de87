"""How far a replay is, in a line of the log now and then, and in words for the commands."""

from __future__ import annotations

from logging import getLogger

from headrace.pipeline.progress.lag import Behind
from headrace.runtime.clock import Clock

logger = getLogger("headrace.views")

_EVERY_MS = 10_000


class ProgressLines:
    """Says how far each version is, but not more often than every ten seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_ms: dict[str, int] = {}

    def tell(self, who: str, behind: Behind) -> None:
        now_ms = self._clock.monotonic_ms()
        if behind.records is None or now_ms - self._told_ms.setdefault(who, now_ms) < _EVERY_MS:
            return
        self._told_ms[who] = now_ms
        logger.info("%s: %s", who, in_words(behind))


def in_words(behind: Behind) -> str:
    """``1,200,000 of 5,000,000 records, 150,000/s, 25 s left``."""
    if behind.records is None:
        return "not known yet"
    parts = [f"{behind.total - behind.records:,} of {behind.total:,} records"]
    if behind.per_s >= 1:
        parts += [f"{behind.per_s:,.0f}/s", f"{time_left(behind.records / behind.per_s)} left"]
    return ", ".join(parts)


def time_left(seconds: float) -> str:
    for unit_s, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"
