"""Counts events and their values: since the start, and within the last windows of time.

Like Java's clients, a sensor keeps a few samples (``metrics.num.samples``, 2) of a fixed length
(``metrics.sample.window.ms``, 30 s). Averages, maxima and rates are those of the samples, so they forget what is older
than a minute. Totals are those of the whole life.

Any thread may read. A reader that comes while a value is recorded may see the count without the sum. Almost all
sensors are recorded by one thread. Several threads record how long their ``send()`` waited for memory or metadata: if
two of them end in the same microsecond, one of the values may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from math import inf, nan
from typing import NamedTuple

_MS_PER_SECOND = 1_000
_MS_PER_HOUR = 3_600_000


class Window(NamedTuple):
    """How long values count for averages, maxima and rates."""

    num_samples: int = 2
    sample_ms: int = 30_000


class _Sample(NamedTuple):
    started_ms: float
    events: int
    sum: float
    max: float


class Sensor:
    """The values of one kind of event, such as the sizes of all requests."""

    __slots__ = (
        "_ended_events",
        "_ended_sum",
        "_ends_ms",
        "_events",
        "_max",
        "_past",
        "_started_ms",
        "_sum",
        "_window",
    )

    def __init__(self, window: Window) -> None:
        self._window = window
        self._started_ms = self._ends_ms = -inf
        self._events = 0
        self._sum = 0.0
        self._max = -inf
        self._past: tuple[_Sample, ...] = ()
        #: The events and their sum before the current sample.
        self._ended_events = 0
        self._ended_sum = 0.0

    def record(self, value: float, now_ms: float) -> None:
        """
        :param now_ms: monotonic time.
        """
        if now_ms >= self._ends_ms:
            self._begin_sample(now_ms)
        self._events += 1
        self._sum += value
        if value > self._max:
            self._max = value

    def _begin_sample(self, now_ms: float) -> None:
        if self._events:
            ended = _Sample(self._started_ms, self._events, self._sum, self._max)
            self._past = (*self._past, ended)[-self._window.num_samples :]
            self._ended_events += self._events
            self._ended_sum += self._sum
        self._events, self._sum, self._max = 0, 0.0, -inf
        self._started_ms, self._ends_ms = now_ms, now_ms + self._window.sample_ms

    def read(self, now_ms: float) -> Reading:
        return read_all((self,), self._window, now_ms)

    def samples(self, now_ms: float) -> list[_Sample]:
        """Returns the samples that have events and are not too old."""
        current = _Sample(self._started_ms, self._events, self._sum, self._max)
        oldest_ms = now_ms - self._window.num_samples * self._window.sample_ms
        return [one for one in (*self._past, current) if one.events and one.started_ms > oldest_ms]

    @property
    def total_events(self) -> int:
        return self._ended_events + self._events

    @property
    def total(self) -> float:
        return self._ended_sum + self._sum


class Reading(NamedTuple):
    """The values of sensors at one moment."""

    total_events: int
    total: float
    #: Within the window:
    events: int
    sum: float
    max: float
    window_ms: float


def read_all(sensors: Iterable[Sensor], window: Window, now_ms: float) -> Reading:
    """Reads several sensors as if they were one."""
    total_events, total = 0, 0.0
    samples: list[_Sample] = []
    for sensor in sensors:
        total_events += sensor.total_events
        total += sensor.total
        samples += sensor.samples(now_ms)
    return Reading(
        total_events,
        total,
        events=sum(sample.events for sample in samples),
        sum=sum(sample.sum for sample in samples),
        max=max((sample.max for sample in samples), default=-inf),
        window_ms=_window_ms(samples, window, now_ms),
    )


def _window_ms(samples: list[_Sample], window: Window, now_ms: float) -> float:
    """Returns the time that a rate is about.

    A sensor that has just begun would show a rate that is far too high. So time counts as if all samples but the
    current one were complete, as in Java.
    """
    elapsed_ms = now_ms - min((sample.started_ms for sample in samples), default=now_ms)
    missing = window.num_samples - 1 - int(elapsed_ms // window.sample_ms)
    return max(1, elapsed_ms + max(0, missing) * window.sample_ms)


class Stat(Enum):
    """The value of a sensor that a metric shows: the ending of the metric's name, and what it is about."""

    AVG = "-avg", "the values"
    MAX = "-max", "the values"
    RATE = "-rate", "the values, per second"
    TOTAL = "-total", "the values, since the start"
    EVENT_RATE = "-rate", "the number of events, per second"
    EVENTS_PER_HOUR = "-rate-per-hour", "the number of events, per hour"
    EVENTS = "-total", "the number of events, since the start"
    #: An average whose name does not say so.
    PLAIN_AVG = "", "the values"

    @property
    def ending(self) -> str:
        return self.value[0]

    @property
    def is_sum(self) -> bool:
        """Whether the metric only grows, so that it can be sent as a difference (KIP-714)."""
        return self in (Stat.TOTAL, Stat.EVENTS)

    def of(self, reading: Reading) -> float:
        """Returns the value; NaN if there were no events in the window."""
        match self:
            case Stat.TOTAL:
                return reading.total
            case Stat.EVENTS:
                return reading.total_events
            case Stat.RATE:
                return reading.sum * _MS_PER_SECOND / reading.window_ms
            case Stat.EVENT_RATE:
                return reading.events * _MS_PER_SECOND / reading.window_ms
            case Stat.EVENTS_PER_HOUR:
                return reading.events * _MS_PER_HOUR / reading.window_ms
            case Stat.MAX:
                return reading.max if reading.events else nan
            case _:
                return reading.sum / reading.events if reading.events else nan
