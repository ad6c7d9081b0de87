"""Reads the status of a project: its graph and its versions with their progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from markupsafe import Markup

from headrace.console.views.model import PartitionOffset, SourceBox, Status, VersionCost, VersionRow, ViewRow
from headrace.console.views.opened import Opened
from headrace.pipeline.maintenance.ways import MEANINGS, Way, stored_way
from headrace.pipeline.management.graph.model import Graph, ViewNode, graph_of
from headrace.pipeline.management.graph.svg import svg_text
from headrace.pipeline.management.opened import is_running
from headrace.pipeline.management.progress import VersionProgress, read_progress
from headrace.pipeline.management.status import delivery_notes
from headrace.pipeline.project.loading import read_project
from headrace.runtime.clock import SystemClock

_MS = 1_000


def read_status(opened: Opened, address: Callable[[str], str]) -> Status:
    """
    :param address: the page of a view.
    """
    here = opened.here
    draft = read_project(here.project.folder)
    clock = SystemClock()
    now_ms = clock.wall_ms()
    with opened.log_lock:
        progress = _with_rates(opened, read_progress(here, opened.log, None), clock.monotonic_ms() / _MS)
    graph = graph_of(draft.project.views, draft.project.sources, progress, now_ms)
    notes = delivery_notes(here.database, (each.version for each in progress))
    if draft.problems:
        notes.append(f"the files have {len(draft.problems)} problems, which 'headrace views apply' prints")
    rows = [_version_row(each, now_ms) for each in progress]
    return Status(
        str(here.project.folder),
        is_running(here.project),
        tuple(SourceBox(each.name, each.kind, each.topics, each.pattern) for each in graph.sources),
        tuple(_view_row(view, rows) for view in graph.views),
        tuple(notes),
        _picture(graph, address),
    )


def _picture(graph: Graph, address: Callable[[str], str]) -> Markup:
    """The drawing escapes names itself."""
    return Markup(svg_text(graph, {view.name: address(view.name) for view in graph.views if view.versions}))


def _with_rates(opened: Opened, progress: list[VersionProgress], now_s: float) -> list[VersionProgress]:
    opened.rates.keep({each.version.label for each in progress})
    return [replace(each, per_s=opened.rates.of(each.version.label, each.done, now_s)) for each in progress]


def _view_row(view: ViewNode, rows: list[VersionRow]) -> ViewRow:
    own = tuple(row for row in rows if row.view == view.name)
    serving = next((row for row in own if row.serves), None)
    return ViewRow(view.name, view.architecture, view.reads, view.has_file, serving, own)


def _version_row(progress: VersionProgress, now_ms: int) -> VersionRow:
    version, committed, cost = progress.version, progress.committed, progress.cost
    way = stored_way(version.definition)
    left_s = progress.seconds_left
    return VersionRow(
        version.view,
        version.version,
        str(version.state),
        progress.serves,
        str(version.desired_state),
        str(version.definition["architecture"]),
        way,
        MEANINGS.get(Way(way), "") if way in set(Way) else "",
        progress.behind,
        progress.done,
        progress.total,
        progress.per_s,
        None if left_s is None or not progress.behind else left_s * _MS,
        None if committed is None else committed.events,
        None if committed is None else committed.dead_letters,
        None if committed is None else committed.dropped_late,
        progress.age_ms(now_ms),
        None if committed is None else committed.updated_ms,
        progress.trouble or "",
        progress.own_offsets or "",
        None if cost is None else VersionCost(cost.busy, cost.micro_batch_ms, cost.records_per_s, cost.cpu_cores),
        tuple(change.text for change in progress.schema_changes),
        () if committed is None else flat_offsets(committed.offsets),
    )


def flat_offsets(offsets: Mapping[str, Mapping[int, int]]) -> tuple[PartitionOffset, ...]:
    return tuple(
        PartitionOffset(topic, partition, offset)
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    )
