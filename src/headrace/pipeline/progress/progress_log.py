"""Logs how far a replay is, at most every ten seconds per version; and formats a lag for the commands."""

from __future__ import annotations

from logging import getLogger

from headrace.pipeline.progress.lag import Lag
from headrace.runtime.clock import Clock

logger = getLogger("headrace.views")

_EVERY_MS = 10_000


class ProgressLog:
    """Logs the progress of each version, at most every ten seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_ms: dict[str, int] = {}

    def log(self, label: str, lag: Lag) -> None:
        now_ms = self._clock.monotonic_ms()
        if lag.records is None or now_ms - self._logged_ms.setdefault(label, now_ms) < _EVERY_MS:
            return
        self._logged_ms[label] = now_ms
        logger.info("%s: %s", label, lag_text(lag))


def lag_text(lag: Lag) -> str:
    """``1,200,000 of 5,000,000 records, 150,000/s, 25 s left``."""
    if lag.records is None:
        return "not known yet"
    parts = [f"{lag.total - lag.records:,} of {lag.total:,} records"]
    if lag.per_s >= 1:
        parts += [f"{lag.per_s:,.0f}/s", f"{time_left(lag.records / lag.per_s)} left"]
    return ", ".join(parts)


def time_left(seconds: float) -> str:
    for unit_s, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds:.0f} s"
