"""Draws the graph of a project as an SVG file that needs nothing else: no script, no font, no other file.

The layout has layers from left to right. A source is in the first layer, and a view is one layer to the right of the
last thing that it reads. Within a layer, boxes are ordered by the mean height of what they read, so that lines cross
less. The width of text is estimated from its length, because the reader's font is not known.

Each part has a class, so that a page can colour it by its own style sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from headrace.pipeline.management.graph.model import Graph

_CHARACTER, _LINE, _PADDING = 7.0, 17.0, 10.0
_BETWEEN_LAYERS, _BETWEEN_BOXES, _MARGIN = 70.0, 18.0, 16.0
_COLOURS = {
    "source": ("#eef2f7", "#5b7083"),
    "view": ("#e7f4ec", "#3a7d54"),
    "trouble": ("#fdeceb", "#b3382c"),
}


class _Box(NamedTuple):
    name: str
    kind: str
    lines: list[str]
    reads: tuple[str, ...]

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _CHARACTER + 2 * _PADDING

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + 2 * _PADDING


class _Placed(NamedTuple):
    box: _Box
    x: float
    y: float

    @property
    def middle(self) -> float:
        return self.y + self.box.height / 2


def svg_text(graph: Graph, links: Mapping[str, str] | None = None) -> str:
    """
    :param links: the address that the box of a name leads to.
    """
    placed = _placed(graph)
    width = max((each.x + each.box.width for each in placed.values()), default=0.0) + _MARGIN
    height = max((each.y + each.box.height for each in placed.values()), default=0.0) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="ui-monospace, monospace" font-size="12" role="img" '
        'aria-label="sources and views">',
        "<title>sources and views</title>",
        f'<rect class="ground" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0L8 4L0 8z" fill="#5b7083"/></marker></defs>',
    ]
    parts += [_line(placed[name], each) for each in placed.values() for name in each.box.reads if name in placed]
    parts += [_linked(_drawn(each), (links or {}).get(each.box.name)) for each in placed.values()]
    return "\n".join([*parts, "</svg>"])


def _placed(graph: Graph) -> dict[str, _Placed]:
    layers: dict[int, list[_Box]] = {}
    for box in _boxes(graph):
        layers.setdefault(graph.layers[box.name], []).append(box)
    placed: dict[str, _Placed] = {}
    x = _MARGIN
    for number in sorted(layers):
        y = _MARGIN
        for box in sorted(layers[number], key=lambda box: (_mean_height(box, placed), box.name)):
            placed[box.name] = _Placed(box, x, y)
            y += box.height + _BETWEEN_BOXES
        x += max(box.width for box in layers[number]) + _BETWEEN_LAYERS
    return placed


def _boxes(graph: Graph) -> list[_Box]:
    boxes = [
        _Box(source.name, "source", [source.name, f"{source.kind}: {source.records}"], ()) for source in graph.sources
    ]
    for view in graph.views:
        kind = "trouble" if any(each.trouble for each in view.versions) else "view"
        boxes.append(_Box(view.name, kind, [f"{view.name} ({view.architecture})", *view.state_lines], view.reads))
    return boxes


def _mean_height(box: _Box, placed: dict[str, _Placed]) -> float:
    heights = [placed[name].middle for name in box.reads if name in placed]
    return sum(heights) / len(heights) if heights else 0.0


def _line(start: _Placed, end: _Placed) -> str:
    x1, x2 = start.x + start.box.width, end.x
    bend = max(20.0, (x2 - x1) / 2)
    return (
        f'<path class="edge" d="M{x1:.1f} {start.middle:.1f}C{x1 + bend:.1f} {start.middle:.1f} '
        f'{x2 - bend:.1f} {end.middle:.1f} {x2:.1f} {end.middle:.1f}" fill="none" '
        'stroke="#5b7083" stroke-width="1.2" marker-end="url(#arrow)"/>'
    )


def _drawn(placed: _Placed) -> str:
    fill, stroke = _COLOURS[placed.box.kind]
    box = placed.box
    texts = "".join(
        f'<text x="{placed.x + _PADDING:.1f}" y="{placed.y + _PADDING + _LINE * (at + 0.75):.1f}" '
        f'font-weight="{"normal" if at else "bold"}">{escape(line)}</text>'
        for at, line in enumerate(box.lines)
    )
    return (
        f'<g class="{box.kind}"><rect x="{placed.x:.1f}" y="{placed.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="5" fill="{fill}" stroke="{stroke}"/>{texts}</g>'
    )


def _linked(drawn: str, address: str | None) -> str:
    return drawn if address is None else f'<a href="{escape(address)}">{drawn}</a>'
