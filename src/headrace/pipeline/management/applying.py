"""Applies the files of a project: checks them, and makes new versions of changed views.

If there are problems, nothing is changed. Problems that need no Spark are found within a second
(``query/project_checks.py``), whatever has changed. If there are none, Spark checks the views whose definition has
changed, and the views that are newly published or exported. If ``headrace views run`` is running, its Spark checks
them; otherwise a Spark is started here. The plan is shown before the catalog changes: which versions are new, which
stay, and how many records each new version reads.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.management.command_spark import CommandSpark
from headrace.pipeline.management.opened import is_running
from headrace.pipeline.management.progress import open_log
from headrace.pipeline.project.applying import Change, apply_changes, plan_changes, taken_names, with_switch
from headrace.pipeline.project.loading import Draft, read_project
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.toml_files import Problem, ProjectError
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.views.answers import html_table

if TYPE_CHECKING:
    from headrace.pipeline.query.project_checks import Checked

HEADINGS = ("VIEW", "CHANGE", "REPLAYS", "WHAT WILL HAPPEN")


@dataclass(frozen=True)
class Plan:
    """The changes that applying a project makes, or has made.

    :param notes: by view, why it is kept up to date in its way, where that is worth a remark.
    :param is_running: whether ``headrace views run`` is running and acts on the changes.
    """

    changes: list[Change]
    notes: Mapping[str, str]
    is_dry_run: bool
    is_running: bool

    def value(self) -> dict[str, object]:
        """The plan as JSON values."""
        return {
            "dry_run": self.is_dry_run,
            "changes": [
                {
                    "view": change.view,
                    "change": change.kind,
                    "version": change.version,
                    "what": change.description,
                    "way": change.way,
                    "records": change.records,
                    "because": list(change.because),
                    "together_with": list(change.together_with),
                    "note": self.notes.get(change.view, ""),
                }
                for change in self.changes
            ],
        }

    def rows(self) -> list[tuple[str, str, str | None, str]]:
        return [(change.view, str(change.kind), _replayed(change), change.description) for change in self.changes]

    def remarks(self) -> list[str]:
        """Sentences about the plan that its rows do not show."""
        said = [
            f"{change.view} is kept up to date by {change.way}: {self.notes[change.view]}"
            for change in self.changes
            if change.view in self.notes
        ]
        acts = any(change.has_effect for change in self.changes)
        if self.is_dry_run:
            said.append("nothing was changed (--dry-run)")
        elif acts and not self.is_running:
            said.append("'headrace views run' is not running: it does this when it starts")
        return said

    def __repr__(self) -> str:
        return "\n".join([": ".join((view, what)) for view, _, _, what in self.rows()] + self.remarks())

    def _repr_html_(self) -> str:
        return html_table([each.lower() for each in HEADINGS], self.rows()) + "".join(
            f"<p>{html.escape(remark)}</p>" for remark in self.remarks()
        )


def _replayed(change: Change) -> str | None:
    """How many records a new version reads; None if it is no new version, or the log does not answer."""
    return f"{change.records:,} records" if change.is_new_version and change.records is not None else None


def apply_project(
    folder: str | Path,
    note: Callable[[str], None],
    *,
    show: Callable[[Plan], None] = lambda _: None,
    switch: str | None = None,
    is_dry_run: bool = False,
    master: str | None = None,
) -> Plan:
    """
    :param note: tells the user what takes a while.
    :param show: shows the plan before it is carried out.
    :param switch: ``auto`` or ``manual``; overrides the files.
    :param master: the master of a Spark that is started for the checks.
    :raises ProjectError: if the files have problems. Nothing was changed.
    """
    draft = read_project(folder)
    if draft.problems:
        _check(draft, draft.project.views, master, note)
        raise _problems(draft, draft.problems)  # if the checks have found no problem, the files still have
    project = replace(draft.project, views=with_switch(draft.project.views, switch))
    database = Database(project.serving_url)
    try:
        catalog = Catalog(database)
        changes = plan_changes(project.views, catalog.views(), catalog.versions())
        changes, notes = _checked(draft, database, changes, master, note)
        plan = Plan(_with_records(changes, project), notes, is_dry_run, is_running(project))
        show(plan)
        if not is_dry_run:
            try:
                apply_changes(database, catalog, plan.changes)
            except ProjectError as error:
                raise _problems(draft, error.problems) from None
    finally:
        database.close()
    return plan


def _checked(
    draft: Draft, database: Database, changes: list[Change], master: str | None, note: Callable[[str], None]
) -> tuple[list[Change], Mapping[str, str]]:
    """The changes with the ways of the new versions, and notes about these.

    :raises ProjectError: if there are problems.
    """
    if not any(change.has_effect for change in changes):
        return changes, {}
    if taken := taken_names(database, changes):
        raise _problems(draft, taken)
    checked = _check(draft, [change.view for change in changes if change.needs_check], master, note)
    new = {change.view for change in changes if change.is_new_version}  # the others keep the way that they have
    made = [
        replace(change, way=checked.ways.get(change.view, change.way)) if change.view in new else change
        for change in changes
    ]
    return made, {view: text for view, text in checked.notes.items() if view in new}


def _with_records(changes: list[Change], project: Project) -> list[Change]:
    """The changes with the number of records that each new version reads."""
    if not any(change.is_new_version for change in changes):
        return changes
    with open_log(project) as log:
        log.refresh()
        return [
            replace(change, records=log.records_of(change.definition))
            if change.is_new_version and change.definition is not None
            else change
            for change in changes
        ]


def _check(draft: Draft, changed: Iterable[str], master: str | None, note: Callable[[str], None]) -> Checked:
    """Checks the project.

    :param changed: the views whose queries Spark checks. The others were checked when they were applied.
    :raises ProjectError: if there are problems.
    """
    from headrace.pipeline.query.project_checks import Checked, check_by_spark, check_quickly, in_order

    views = list(changed)
    spark = CommandSpark(draft, master, note)
    quick = check_quickly(draft)
    problems = list(quick.problems)
    found = Checked([], {})
    if problems and spark.is_shared:
        problems += check_by_spark(draft, quick, views, spark.checked_by_runner).problems
    elif not problems:
        problems = spark.confirmed({name: doubt for name, doubt in quick.doubts.items() if name in views})
    if not problems:
        found = check_by_spark(draft, quick, views, spark.checked)
        problems = found.problems
    if problems:
        raise _problems(draft, in_order(draft, problems))
    return found


def _problems(draft: Draft, problems: Iterable[Problem]) -> ProjectError:
    folder = draft.project.folder
    return ProjectError(replace(problem, file=folder / problem.file) for problem in problems)
