"""``headrace views list`` and ``status``: shows views and versions from the catalog, with their progress."""

from __future__ import annotations

from argparse import Namespace

from headrace.pipeline.maintenance.ways import stored_way
from headrace.pipeline.progress.progress_log import time_left
from headrace.pipeline.project.loading import VIEWS_FOLDER
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import DesiredState, Version, VersionState, View
from headrace.runtime.clock import SystemClock
from headrace.tools.shared.commands import Output, Table, columns
from headrace.tools.views.command import is_running, open_project
from headrace.tools.views.progress import VersionProgress, open_log, read_progress

# ------------------------------------------------------------------------------------------------------------- list


def list_views(options: Namespace, out: Output) -> None:
    with open_project(options) as here:
        views, versions = here.catalog.views(), here.catalog.versions()
        rows = [_listed(view, [each for each in versions if each.view == view.name]) for view in views]
        known = {view.name for view in views}
        files = sorted(path.stem for path in (here.project.folder / VIEWS_FOLDER).glob("*.toml"))
        rows += [(name, None, None, None, "not applied yet") for name in files if name not in known]
    headings = ("VIEW", "ARCHITECTURE", "SERVES", "STATE", "VERSIONS")
    names = ("view", "architecture", "serving_version", "state", "versions")
    value = [dict(zip(names, row, strict=True)) for row in rows]
    lines = (line.rstrip() for line in columns(headings, rows, gap=2)) if rows else iter(["there are no views"])
    out.show(value, lines, Table([heading.lower() for heading in headings], rows) if rows else None)


def _listed(view: View, versions: list[Version]) -> tuple[object, ...]:
    states = {each.version: each.state for each in versions}
    others = ", ".join(f"v{number} {state}" for number, state in states.items())
    serving = view.serving_version
    return view.name, view.architecture, serving and f"v{serving}", states.get(serving or 0), others or None


# ----------------------------------------------------------------------------------------------------------- status


def status(options: Namespace, out: Output) -> int | None:
    with open_project(options) as here, open_log(here.project) as log:
        if options.watch:
            from headrace.tools.views.watch import watch

            return watch(here, log, options.view, out)
        versions = read_progress(here, log, options.view)
    _show(versions, here.project, out)
    return None


_HEADINGS = ("VIEW", "VERSION", "STATE", "KEPT BY", "BEHIND", "EVENTS", "DEAD LETTERS", "DROPPED LATE", "AGE", "BUSY")


def _show(versions: list[VersionProgress], project: Project, out: Output) -> None:
    is_at_work = is_running(project)
    rows = [_row(each, is_at_work) for each in versions]
    lines = [line.rstrip() for line in columns(_HEADINGS, rows, gap=2)] if rows else ["there are no versions"]
    value = {"running": is_at_work, "versions": [each.value() for each in versions]}
    out.show(value, lines, Table([heading.lower() for heading in _HEADINGS], rows) if rows else None)
    for each in versions:
        if each.trouble:
            out.note(f"{each.version.label} {each.trouble}")
        for change in each.schema_changes:
            out.note(f"{each.version.label}: {change.text}")
    if not is_at_work:
        out.note("'headrace views run' is not running")


def _row(progress: VersionProgress, is_at_work: bool) -> tuple[object, ...]:
    version, committed = progress.version, progress.committed
    state = str(version.state)
    if progress.serves and version.state is not VersionState.SERVING:
        state += " (serves)"
    if version.desired_state is DesiredState.DROP and version.state is not VersionState.DROPPING:
        state += " (to be dropped)"
    age_ms = progress.age_ms(SystemClock().wall_ms())
    age = None if age_ms is None else time_left(age_ms / 1000)
    counts = (None, None, None) if committed is None else (
        committed.events, committed.dead_letters, committed.dropped_late
    )  # fmt: skip
    way = stored_way(version.definition)
    busy = f"{progress.cost.busy:.0%}" if is_at_work and progress.cost is not None else None
    return version.view, f"v{version.version}", state, way, progress.behind, *counts, age, busy
