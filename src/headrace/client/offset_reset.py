"""Parses ``auto.offset.reset``: the position if nothing is committed, or if the committed offset is not in the log.

The values are ``earliest``, ``latest``, ``none`` (an error) and ``by_duration:`` with an ISO 8601 duration, for example
``by_duration:P2DT3H4M5.5S``. A duration means the first record that is not older (KIP-1106), or the end if there is no
such record. A ListOffsets request for a timestamp resolves the value; -1 and -2 mean the end and the start.
"""

import re
from enum import Enum
from typing import NamedTuple

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

_BY_DURATION = "by_duration:"
#: A day has 24 hours. There must be at least one field, and at least one field behind a T.
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?=.)(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class ResetKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"


class OffsetReset(NamedTuple):
    """A parsed value of ``auto.offset.reset``."""

    kind: ResetKind
    duration_ms: int = 0

    def timestamp_ms(self, now_ms: int) -> int:
        """Returns the timestamp for the ListOffsets request."""
        if self.kind is ResetKind.BY_DURATION:
            return max(0, now_ms - self.duration_ms)
        assert self.kind is not ResetKind.NONE, "nothing to ask for"
        return EARLIEST_TIMESTAMP if self.kind is ResetKind.EARLIEST else LATEST_TIMESTAMP


EARLIEST = OffsetReset(ResetKind.EARLIEST)
LATEST = OffsetReset(ResetKind.LATEST)
NONE = OffsetReset(ResetKind.NONE)


def parse_offset_reset(text: str) -> OffsetReset:
    """
    :raises ValueError: if the text is not one of the four values.
    """
    lowered = text.strip().lower()
    if lowered.startswith(_BY_DURATION):
        return OffsetReset(ResetKind.BY_DURATION, parse_duration_ms(text.strip()[len(_BY_DURATION) :]))
    for known in (EARLIEST, LATEST, NONE):
        if lowered == known.kind.value:
            return known
    raise ValueError(
        f"auto.offset.reset must be earliest, latest, none or by_duration:<ISO 8601 duration>, not {text!r}"
    )


def parse_duration_ms(text: str) -> int:
    """
    :raises ValueError: if the text is not an ISO 8601 duration in days or smaller units, or is negative.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an ISO 8601 duration such as P1DT2H30M")
    duration_ms = sum(int(match[unit] or 0) * unit_ms for unit, unit_ms in _UNITS_MS.items())
    fraction_ms = int(((match["fraction"] or "") + "000")[:3])
    duration_ms += -fraction_ms if (match["seconds"] or "").startswith("-") else fraction_ms
    duration_ms *= -1 if match["sign"] == "-" else 1
    if duration_ms < 0:
        raise ValueError(f"{text!r} is negative: a reset goes back in time, so the duration must be positive")
    return duration_ms
