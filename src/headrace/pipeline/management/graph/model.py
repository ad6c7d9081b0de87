"""Holds the graph of a project: sources, views with their versions, and who reads what.

The files say what each view reads. A view without a file is drawn by the definition of its newest version. A view that
was not applied yet has no versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.pipeline.maintenance.ways import stored_way
from headrace.pipeline.management.progress import VersionProgress
from headrace.pipeline.progress.progress_log import time_left
from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.source_definition import SourceDefinition
from headrace.pipeline.project.views_on_views.order import order_of
from headrace.pipeline.serving.catalog import Version


@dataclass(frozen=True)
class SourceNode:
    """:param name: ``VIEW.events`` for the topics that a view's own file has."""

    name: str
    kind: str
    topics: tuple[str, ...]
    pattern: str = ""

    @property
    def records(self) -> str:
        return self.pattern or ", ".join(self.topics)

    def value(self) -> dict[str, object]:
        return {"name": self.name, "kind": self.kind, "topics": list(self.topics), "pattern": self.pattern or None}


@dataclass(frozen=True)
class VersionNode:
    """
    :param behind: records that are not in the answer yet; None if the log does not answer.
    :param age_ms: the time since the answer last had every record of the log; None if that never was.
    """

    version: int
    state: str
    way: str
    serves: bool
    behind: int | None
    age_ms: int | None
    trouble: str | None

    @property
    def text(self) -> str:
        """``v2 replaying, 5,000 behind, 12 s old``."""
        state = f"{self.state} (serves)" if self.serves and self.state != "serving" else self.state
        parts = [f"v{self.version} {state}"]
        if self.behind is not None:
            parts.append(f"{self.behind:,} behind")
        if self.age_ms is not None:
            parts.append(f"{time_left(self.age_ms / 1000)} old")
        return ", ".join(parts)

    def value(self) -> dict[str, object]:
        return {
            "version": self.version,
            "state": self.state,
            "way": self.way,
            "serves": self.serves,
            "records_behind": self.behind,
            "age_ms": self.age_ms,
            "trouble": self.trouble,
        }


@dataclass(frozen=True)
class ViewNode:
    """
    :param sources: the sources that its query names; not those that it reads through views.
    :param views: the views that its query names.
    """

    name: str
    architecture: str
    sources: tuple[str, ...]
    views: tuple[str, ...]
    has_file: bool
    versions: tuple[VersionNode, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.sources, *self.views)

    @property
    def state_lines(self) -> list[str]:
        lines = [each.text for each in self.versions] or ["not applied yet"]
        return lines if self.has_file else [*lines, "its file is gone"]

    def value(self) -> dict[str, object]:
        return {
            "name": self.name,
            "architecture": self.architecture,
            "reads": {"sources": list(self.sources), "views": list(self.views)},
            "has_file": self.has_file,
            "serving_version": next((each.version for each in self.versions if each.serves), None),
            "versions": [each.value() for each in self.versions],
        }


@dataclass(frozen=True)
class Graph:
    """:param views: each after those that it reads. Views that read each other, which ``apply`` refuses, are last."""

    sources: tuple[SourceNode, ...]
    views: tuple[ViewNode, ...]
    layers: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        layers = {source.name: 0 for source in self.sources}
        for view in self.views:
            layers[view.name] = 1 + max((layers.get(name, 0) for name in view.reads), default=0)
        object.__setattr__(self, "layers", layers)

    def value(self) -> dict[str, object]:
        return {
            "sources": [source.value() for source in self.sources],
            "views": [view.value() for view in self.views],
        }


def graph_of(
    definitions: Mapping[str, ViewDefinition],
    sources: Mapping[str, SourceDefinition],
    progress: Iterable[VersionProgress],
    now_ms: int,
) -> Graph:
    """
    :param definitions: of the views that have files.
    :param sources: those that have files; a source that no view reads is drawn too.
    """
    by_view: dict[str, list[VersionProgress]] = {}
    for each in progress:
        by_view.setdefault(each.version.view, []).append(each)
    stored = {name: _definition(found[-1].version) for name, found in by_view.items() if name not in definitions}
    nodes = {each.name: _source_node(each.name, each) for each in sources.values()}
    views: dict[str, ViewNode] = {}
    for name, definition in {**stored, **definitions}.items():
        read = _named_sources(definition)
        nodes |= {key: node for key, node in read.items() if key not in nodes}
        views[name] = ViewNode(
            name, definition.architecture, tuple(read), _named_views(definition), name in definitions,
            tuple(_version_node(each, now_ms) for each in by_view.get(name, ())),
        )  # fmt: skip
    ordered = order_of({name: view.views for name, view in views.items()}).names
    ordered += sorted(views.keys() - set(ordered))
    return Graph(tuple(nodes[name] for name in sorted(nodes)), tuple(views[name] for name in ordered))


def _definition(version: Version) -> ViewDefinition:
    return ViewDefinition.from_dict(version.definition)


def _named_views(definition: ViewDefinition) -> tuple[str, ...]:
    return tuple(view.name for view in definition.views if view.name in definition.reads_directly)


def _named_sources(definition: ViewDefinition) -> dict[str, SourceNode]:
    """The sources that the query itself names."""
    found = {}
    for source in definition.inputs:
        if definition.views and source.name.lower() not in definition.reads_directly:
            continue
        if not source.topics and not source.pattern:  # the file has a problem
            continue
        is_own = source.file == definition.file
        name = f"{definition.name}.events" if is_own else source.name
        found[name] = _source_node(name, source)
    return found


def _source_node(name: str, source: SourceDefinition) -> SourceNode:
    return SourceNode(name, source.kind, source.topics, source.pattern)


def _version_node(progress: VersionProgress, now_ms: int) -> VersionNode:
    version = progress.version
    return VersionNode(
        version.version, str(version.state), stored_way(version.definition), progress.serves, progress.behind,
        progress.age_ms(now_ms), progress.trouble,
    )  # fmt: skip
