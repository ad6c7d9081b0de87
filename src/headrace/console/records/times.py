"""Reads moments as readers write them: milliseconds since 1970, or a date with a time in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def read_time_ms(text: str) -> int | None:
    """The moment in milliseconds; None for an empty text.

    :raises ValueError: if the text is no moment.
    """
    text = text.strip().removesuffix(" UTC")
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 17 and len(text) != len("20260131"):
        return int(text)
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def wrong_time(text: str) -> str:
    """Returns what is wrong with a moment; empty if nothing is."""
    try:
        found = read_time_ms(text)
    except (ValueError, OverflowError):
        return "write 2026-01-31 10:00:00 (UTC), or milliseconds since 1970"
    return "it is before 1970" if found is not None and found < 0 else ""
