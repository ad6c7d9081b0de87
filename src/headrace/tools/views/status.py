"""``headrace views list`` and ``status``: shows views and versions from the catalog, with their progress."""

from __future__ import annotations

from argparse import Namespace

from headrace.pipeline.management.progress import open_log
from headrace.pipeline.management.status import HEADINGS, Status, delivery_notes, read_status
from headrace.pipeline.project.loading import VIEWS_FOLDER
from headrace.pipeline.serving.catalog import Version, View
from headrace.tools.shared.commands import Output, Table, columns
from headrace.tools.views.command import open_project

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
        found = read_status(here, log, options.view)
        notes = delivery_notes(here.database, (each.version for each in found.versions))
    _show(found, out)
    for note in notes:
        out.note(note)
    return None


def _show(found: Status, out: Output) -> None:
    rows = found.rows()
    lines = [line.rstrip() for line in columns(HEADINGS, rows, gap=2)] if rows else ["there are no versions"]
    out.show(found.value(), lines, Table([heading.lower() for heading in HEADINGS], rows) if rows else None)
    for remark in found.remarks():
        out.note(remark)
