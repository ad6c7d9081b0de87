"""Draws an answer with two columns: bars if the first column is text, a line if both are numbers.

The SVG has numbers and escaped texts only, and its colours come from the style sheet.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from headrace.console.views.model import Table

_MOST_BARS = 40
_WIDTH, _ROW, _LABEL, _NUMBER = 640.0, 22.0, 200.0, 90.0
_LONGEST_LABEL = 28
_HEIGHT, _MARGIN = 200.0, 22.0


def answer_chart(table: Table) -> Markup | None:
    """The drawing; None if the answer is not two columns of which the second has numbers."""
    if len(table.columns) != 2 or not table.rows:
        return None
    rows = [(first, second) for first, second in table.rows if _is_number(second)]
    if len(rows) < len(table.rows):
        return None
    numbers = [float(second) for _, second in rows]  # type: ignore[arg-type]
    if len(rows) > 1 and all(_is_number(first) for first, _ in rows):
        return _figure(table, _line([float(first) for first, _ in rows], numbers), _HEIGHT)  # type: ignore[arg-type]
    shown = numbers[:_MOST_BARS]
    labels = ["NULL" if first is None else str(first) for first, _ in rows[:_MOST_BARS]]
    return _figure(table, _bars(labels, shown), len(shown) * _ROW + 4)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _figure(table: Table, drawn: Markup, height: float) -> Markup:
    label = f"{table.columns[1]} by {table.columns[0]}"
    return Markup(
        '<figure class="chart answer"><figcaption>{label}</figcaption>'
        '<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{drawn}</svg></figure>'
    ).format(label=label, width=_WIDTH, height=height, drawn=drawn)


def _bars(labels: Sequence[str], numbers: Sequence[float]) -> Markup:
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    scale = (_WIDTH - _LABEL - _NUMBER) / ((high - low) or 1.0)
    drawn = Markup()
    for at, (label, number) in enumerate(zip(labels, numbers, strict=True)):
        begin = _LABEL + (min(number, 0.0) - low) * scale
        cut = label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"
        drawn += Markup(
            '<text x="0" y="{y}">{label}</text><rect class="bar" x="{x:.1f}" y="{top}" width="{width:.1f}" '
            'height="{height}"/><text x="{end}" y="{y}" text-anchor="end">{number}</text>'
        ).format(
            y=at * _ROW + 15, label=cut, x=begin, top=at * _ROW + 3, width=max(1.0, abs(number) * scale),
            height=_ROW - 6, end=_WIDTH, number=f"{number:,.6g}",
        )  # fmt: skip
    return drawn


def _line(xs: Sequence[float], ys: Sequence[float]) -> Markup:
    points = sorted(zip(xs, ys, strict=True))
    low, high = min(ys), max(ys)
    span_x, span_y = (points[-1][0] - points[0][0]) or 1.0, (high - low) or 1.0
    inner = _HEIGHT - 2 * _MARGIN
    path = "L".join(
        f"{(x - points[0][0]) / span_x * _WIDTH:.1f} {_MARGIN + (high - y) / span_y * inner:.1f}" for x, y in points
    )
    return Markup(
        '<path class="line" d="M{path}"/><text x="0" y="14">{high}</text><text x="0" y="{bottom}">{low}, from {first} '
        'to {last}</text>'
    ).format(
        path=path, high=f"{high:,.6g}", bottom=_HEIGHT - 4, low=f"{low:,.6g}", first=f"{points[0][0]:,.10g}",
        last=f"{points[-1][0]:,.10g}",
    )  # fmt: skip
