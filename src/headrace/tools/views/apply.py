"""``headrace views apply``: checks the files of a project, and makes new versions of changed views.

If there are problems, the command prints them with file and line, and changes nothing. Problems that need no Spark are
printed within a second (``query/project_checks.py``). If there are none, Spark checks the views whose definition has
changed: the Spark of ``headrace views run`` if it is running, else one that the command starts.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.pipeline.project.applying import Change, ChangeKind, apply_changes, plan_changes, with_switch
from headrace.pipeline.project.loading import Draft, read_project
from headrace.pipeline.project.settings import Project
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.tools.shared.commands import FAILED, Output, Table, columns
from headrace.tools.views.command import is_running
from headrace.tools.views.command_spark import CommandSpark
from headrace.tools.views.problems import show_problems

if TYPE_CHECKING:
    from headrace.pipeline.query.project_checks import Checked


def apply(options: Namespace, out: Output) -> int | None:
    draft = read_project(options.project)
    if draft.problems:
        _checked(draft, draft.project.views, options, out)
        return FAILED
    project = replace(draft.project, views=with_switch(draft.project.views, options.switch))
    database = Database(project.serving_url)
    try:
        catalog = Catalog(database)
        changes = plan_changes(project.views, catalog.views(), catalog.versions())
        changed = [change.view for change in changes if change.needs_check]
        checked = _checked(draft, changed, options, out) if changed else None
        if checked is not None and checked.problems:
            return FAILED
        ways, notes = (checked.ways, checked.notes) if checked is not None else ({}, {})
        changes = [replace(change, way=ways.get(change.view, change.way)) for change in changes]
        if not options.dry_run:
            apply_changes(database, catalog, changes)
    finally:
        database.close()
    _show(out, changes, notes, options, project)
    return None


def _checked(draft: Draft, changed: Iterable[str], options: Namespace, out: Output) -> Checked:
    """Checks the project; prints the problems, if there are any.

    :param changed: the views whose queries Spark checks. The others were checked when they were applied.
    """
    from headrace.pipeline.query.project_checks import Checked, check_by_spark, check_quickly, in_order

    spark = CommandSpark(draft, options.master, out)
    quick = check_quickly(draft)
    problems = list(quick.problems)
    found = Checked([], {})
    if problems and spark.is_shared:
        problems += check_by_spark(draft, quick, changed, spark.checked_by_runner).problems
    elif not problems:
        problems = spark.confirmed(quick.doubts)
    if not problems:
        found = check_by_spark(draft, quick, changed, spark.checked)
        problems = found.problems
    show_problems(out, in_order(draft, problems), draft.project.folder)
    return found._replace(problems=problems)


def _show(out: Output, changes: list[Change], notes: Mapping[str, str], options: Namespace, project: Project) -> None:
    value = {
        "dry_run": options.dry_run,
        "changes": [
            {
                "view": change.view,
                "change": change.kind,
                "version": change.version,
                "what": change.description,
                "way": change.way,
                "note": notes.get(change.view, ""),
            }
            for change in changes
        ],
    }
    rows = [(change.view, change.kind, change.description) for change in changes]
    lines = [line.rstrip() for line in columns(("VIEW", "CHANGE", "WHAT WILL HAPPEN"), rows, gap=2)]
    if not rows:
        lines = ["the project has no views; a view is a TOML file in views/"]
    out.show(value, lines, Table(("view", "change", "what will happen"), rows) if rows else None)
    for change in changes:
        if change.view in notes:
            out.note(f"{change.view} is kept up to date by {change.way}: {notes[change.view]}")
    if options.dry_run:
        out.note("nothing was changed (--dry-run)")
    elif any(change.kind not in (ChangeKind.UNCHANGED, ChangeKind.REMOVED) for change in changes) and not is_running(
        project
    ):
        out.note("'headrace views run' is not running: it does this when it starts")
