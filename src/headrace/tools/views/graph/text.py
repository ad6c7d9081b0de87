"""Draws the graph of a project as lines for a terminal, and as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.pipeline.management.graph.model import Graph, ViewNode
from headrace.tools.shared.commands import columns


def text_lines(graph: Graph) -> list[str]:
    """Each source and each view once, views below those that they read; a line per version."""
    if not graph.sources and not graph.views:
        return ["the project has no views; a view is a TOML file in views/"]
    sources = [(source.name, source.kind, source.records) for source in graph.sources]
    views = [row for view in graph.views for row in _rows(view, graph.layers[view.name])]
    lines = [*columns(("SOURCE", "KIND", "TOPICS"), sources, gap=2)]
    lines += ["", *columns(("VIEW", "READS", "VERSIONS"), views, gap=2)]
    return [line.rstrip() for line in lines]


def _rows(view: ViewNode, layer: int) -> Iterator[tuple[object, ...]]:
    name, reads = f"{'  ' * (layer - 1)}{view.name} ({view.architecture})", ", ".join(view.reads)
    for at, line in enumerate(view.state_lines):
        yield (name, reads, line) if at == 0 else ("", "", line)


_STYLES = (
    "classDef source fill:#eef2f7,stroke:#5b7083,color:#1d2733",
    "classDef view fill:#e7f4ec,stroke:#3a7d54,color:#14301f",
    "classDef trouble fill:#fdeceb,stroke:#b3382c,color:#4a1511",
)


def mermaid_lines(graph: Graph) -> list[str]:
    ids = {name: f"n{at}" for at, name in enumerate([*(each.name for each in graph.sources),
                                                     *(each.name for each in graph.views)])}  # fmt: skip
    lines = ["flowchart LR"]
    for source in graph.sources:
        text = _quoted([source.name, f"{source.kind}: {source.records}"])
        lines += [f'    {ids[source.name]}[("{text}")]:::source']
    for view in graph.views:
        style = "trouble" if any(each.trouble for each in view.versions) else "view"
        text = _quoted([f"{view.name} ({view.architecture})", *view.state_lines])
        lines.append(f'    {ids[view.name]}["{text}"]:::{style}')
    for view in graph.views:
        lines += [f"    {ids[name]} --> {ids[view.name]}" for name in view.reads if name in ids]
    return [*lines, *(f"    {style}" for style in _STYLES)]


def _quoted(lines: list[str]) -> str:
    """Text inside double quotes. Mermaid has no escapes but entities, and reads HTML."""
    escaped = (
        line.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;") for line in lines
    )
    return "<br/>".join(escaped)
