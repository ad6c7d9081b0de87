"""Writes numbers as people read them: bytes, counts, rates, durations and moments. None is a dash."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATIONS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
NOT_KNOWN = "–"


def bytes_text(size: float | None) -> str:
    if size is None or size < 0:
        return NOT_KNOWN
    value, unit = float(size), 0
    while value >= 1_024 and unit < len(_UNITS) - 1:
        value, unit = value / 1_024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def count_text(number: float | None) -> str:
    """``1234567`` as ``1,234,567``."""
    return NOT_KNOWN if number is None else f"{number:,.0f}"


def rate_text(number: float | None) -> str:
    """A number per second: two digits if it is small."""
    if number is None:
        return NOT_KNOWN
    return f"{number:,.0f}" if number >= 10 or number == 0 else f"{number:.2g}"


def duration_text(milliseconds: float | None) -> str:
    if milliseconds is None:
        return NOT_KNOWN
    for size, unit in _DURATIONS:
        if abs(milliseconds) >= size:
            return f"{milliseconds / size:.3g} {unit}"
    # A request may take less than a millisecond.
    return f"{milliseconds:.2g} ms" if abs(milliseconds) < 10 else f"{milliseconds:.0f} ms"


def when_text(time_ms: float | None) -> str:
    """A moment in UTC."""
    if time_ms is None or time_ms < 0:
        return NOT_KNOWN
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(sep=" ", timespec="milliseconds")[:23] + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:.0f} ms"
