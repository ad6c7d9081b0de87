"""Makes lines of samples: values and rates over time, with at most 200 points. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from headrace.console.history.sample import grown

Unit = Literal[
    "bytes", "bytes per second", "records", "records per second", "requests per second", "partitions", "milliseconds"
]
MOST_POINTS = 200
#: Between samples that are farther apart, the console did not run: the line has a gap.
_GAP_MS = 300_000


class Point(NamedTuple):
    """A point of a line. The value is None where nothing is known."""

    time_ms: int
    value: float | None


@dataclass(frozen=True)
class Series:
    """A line over time."""

    title: str
    unit: Unit
    points: tuple[Point, ...]

    @property
    def latest(self) -> float | None:
        return self.points[-1].value if self.points else None


def values(title: str, unit: Unit, rows: Iterable[tuple[int, float | None]]) -> Series:
    """A line of values: of several samples between two points, the largest."""
    points = [Point(time_ms, None if value is None else float(value)) for time_ms, value in rows]
    return Series(title, unit, _thinned(points, _largest))


def rates(title: str, unit: Unit, rows: Sequence[tuple[int, float | None]]) -> Series:
    """A line of how fast sums grow, per second: of several samples between two points, the mean."""
    points: list[Point] = []
    for (before_ms, before), (time_ms, value) in pairwise(rows):
        seconds = (time_ms - before_ms) / 1_000
        is_known = before is not None and value is not None and 0 < time_ms - before_ms <= _GAP_MS
        points.append(Point(time_ms, grown(before or 0, value or 0) / seconds if is_known else None))
    return Series(title, unit, _thinned(points, _mean))


def at_times(
    times_ms: Iterable[int], changes: Sequence[tuple[float | None, ...]], column: int
) -> list[tuple[int, float | None]]:
    """The value at each time, from rows that only tell changes: the first column is the time of the change."""
    found: list[tuple[int, float | None]] = []
    at = 0
    value: float | None = None
    for time_ms in times_ms:
        while at < len(changes) and (changes[at][0] or 0) <= time_ms:
            value = changes[at][column]
            at += 1
        found.append((time_ms, value))
    return found


def time_lags(
    times_ms: Sequence[int], ends: Sequence[tuple[int, float | None]], lags: Sequence[tuple[int, float | None]]
) -> list[tuple[int, float | None]]:
    """Estimates the age of the next record to read, at each time, from the end and the lag of a topic at these times.

    The record was written when the end was where the reader is now. Between two samples, records count as written
    evenly. The age is not known if the record was written before the first time.
    """
    found: list[tuple[int, float | None]] = []
    known: list[float] = []
    known_ms: list[int] = []
    for time_ms, (_, end), (_, lag) in zip(times_ms, ends, lags, strict=True):
        if end is not None and known and end < known[-1]:
            known, known_ms = [], []  # The topic was created again.
        if end is not None:
            known.append(end)
            known_ms.append(time_ms)
        found.append((time_ms, None if end is None or lag is None else _age(known, known_ms, end - lag)))
    return found


def _age(ends: list[float], times_ms: list[int], read: float) -> float | None:
    """How long ago the end was at the offset that was read."""
    after = bisect_right(ends, read)
    if after == len(ends):
        return 0.0
    if after == 0:
        return None
    part = (read - ends[after - 1]) / (ends[after] - ends[after - 1])
    return times_ms[-1] - (times_ms[after - 1] + part * (times_ms[after] - times_ms[after - 1]))


def _thinned(points: list[Point], joined: Callable[[list[float]], float]) -> tuple[Point, ...]:
    """Joins neighbours until there are few enough points. A gap stays a gap."""
    if len(points) <= MOST_POINTS:
        return tuple(points)
    width = -(-len(points) // MOST_POINTS)
    parts = (points[begin : begin + width] for begin in range(0, len(points), width))
    return tuple(Point(part[-1].time_ms, _joined(part, joined)) for part in parts)


def _joined(part: list[Point], joined: Callable[[list[float]], float]) -> float | None:
    known = [point.value for point in part if point.value is not None]
    return joined(known) if known else None


def _largest(found: list[float]) -> float:
    return max(found)


def _mean(found: list[float]) -> float:
    return sum(found) / len(found)
