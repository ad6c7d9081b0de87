"""Draws a line over time as SVG, on the server: a chart needs no script, and works where none runs.

The SVG has classes and no styles, because the policy of the pages forbids inline styles. Its texts are escaped by
markupsafe; all else are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from markupsafe import Markup, escape

from headrace.console.history.series import Point, Series, Unit
from headrace.console.texts import NOT_KNOWN, bytes_text, count_text, duration_text, rate_text

_WIDTH, _HEIGHT, _TOP, _BOTTOM = 400, 130, 18, 112
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def _bytes_rate(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{bytes_text(value)}/s"


def _rate(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{rate_text(value)}/s"


_TEXTS: dict[Unit, Callable[[float | None], str]] = {
    "bytes": bytes_text,
    "bytes per second": _bytes_rate,
    "records": count_text,
    "records per second": _rate,
    "requests per second": _rate,
    "partitions": count_text,
    "milliseconds": duration_text,
}


def chart(series: Series) -> Markup:
    """A figure with the line, its newest value and its highest value."""
    write = _TEXTS[series.unit]
    known = [point.value for point in series.points if point.value is not None]
    top = _ceiling(max(known, default=0.0), 1_024 if series.unit.startswith("bytes") else 1_000)
    label = f"{series.title}: now {write(series.latest)}, highest {write(max(known, default=None))}"
    return Markup(
        '<figure class="chart"><figcaption>{title} <strong>{now}</strong></figcaption>'
        '<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        '<path class="axis" d="M0 {top_y}H{width}M0 {bottom}H{width}"/>{lines}'
        '<text x="0" y="{top_text}">{top}</text><text x="0" y="{bottom_text}">{begin}</text>'
        '<text x="{width}" y="{bottom_text}" text-anchor="end">{end}</text></svg></figure>'
    ).format(
        title=series.title,
        now=write(series.latest),
        width=_WIDTH,
        height=_HEIGHT,
        label=label,
        top_y=_TOP,
        bottom=_BOTTOM,
        lines=_lines(series.points, top),
        top_text=_TOP - 5,
        top=write(top) if known else "no samples yet",
        bottom_text=_HEIGHT - 4,
        begin=_clock(series.points[0]) if series.points else "",
        end=_clock(series.points[-1]) if series.points else "",
    )


def _lines(points: tuple[Point, ...], top: float) -> Markup:
    if not points:
        return Markup()
    begin_ms, end_ms = points[0].time_ms, points[-1].time_ms
    span_ms = max(1, end_ms - begin_ms)
    drawn = Markup()
    part: list[tuple[float, float]] = []
    for point in (*points, Point(end_ms, None)):
        if point.value is not None:
            x = (point.time_ms - begin_ms) / span_ms * _WIDTH
            part.append((x, _BOTTOM - point.value / top * (_BOTTOM - _TOP)))
        elif part:
            drawn += _line(part)
            part = []
    return drawn


def _line(part: list[tuple[float, float]]) -> Markup:
    """A line without gaps, and the area below it. A single point becomes a short line."""
    if len(part) == 1:
        part = [part[0], (part[0][0] + 1, part[0][1])]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in part)
    area = f"M{part[0][0]:.1f} {_BOTTOM}L{path}L{part[-1][0]:.1f} {_BOTTOM}Z"
    return Markup('<path class="area" d="{}"/><path class="line" d="M{}"/>').format(escape(area), escape(path))


def _ceiling(value: float, thousand: int) -> float:
    """A round number that is at least the value: 1, 2, 5, 10, ... times a power of 1,000, or of 1,024 for bytes."""
    power = 1.0
    while power * thousand <= value:
        power *= thousand
    while 0 < value <= power / 10:
        power /= 10
    return next((step * power for step in _STEPS if step * power >= value), thousand * power)


def _clock(point: Point) -> str:
    return f"{datetime.fromtimestamp(point.time_ms / 1_000, UTC):%H:%M} UTC"
