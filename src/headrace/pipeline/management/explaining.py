"""Explains how a view of a project is kept up to date, why, and what an event costs. It changes nothing."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.pipeline.common_cut.eligibility import why_outside
from headrace.pipeline.management.command_spark import CommandSpark
from headrace.pipeline.project.loading import VIEWS_FOLDER, Draft, read_project
from headrace.pipeline.project.toml_files import ProjectError, did_you_mean
from headrace.pipeline.serving.errors import UnknownView


@dataclass(frozen=True)
class Explanation:
    """
    :param value: the explanation as JSON values.
    """

    value: dict[str, Any]

    def lines(self) -> list[str]:
        from headrace.pipeline.maintenance.explanation import lines_of

        return lines_of(self.value)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in self.lines())


def explain_project_view(
    folder: str | Path, view: str, note: Callable[[str], None], *, master: str | None = None
) -> Explanation:
    """
    :param note: tells the user what takes a while.
    :raises ProjectError: if the view has problems.
    :raises UnknownView: if there is no such view.
    """
    from headrace.pipeline.query.project_checks import check_quickly

    draft = _only(read_project(folder), view)
    spark = CommandSpark(draft, master, note)
    quick = check_quickly(draft)
    problems = quick.problems or spark.confirmed(quick.doubts)
    explanation = None
    if not problems:
        problems, explanation = spark.explained(draft.project.views[view])
    if explanation is None:
        raise ProjectError(replace(problem, file=draft.project.folder / problem.file) for problem in problems)
    definition, same_offsets = draft.project.views[view], draft.project.same_offsets
    why = why_outside(explanation["way"], definition.trigger_ms, same_offsets=same_offsets)
    return Explanation(explanation | {"own_offsets": why})


def _only(draft: Draft, name: str) -> Draft:
    """The project with this view only, so that mistakes in views that it does not read do not matter.

    :raises UnknownView: if there is no such view.
    """
    folder, views = draft.project.folder, draft.project.views
    file = folder / VIEWS_FOLDER / f"{name}.toml"
    if not file.exists():
        raise UnknownView(f"there is no view {name!r} in {folder / VIEWS_FOLDER}{did_you_mean(name, views)}")
    own = {file}
    if name in views:
        upstream = views[name].views
        own |= {folder / query.file for query in (views[name].query, *(each.query for each in upstream))}
        own |= {folder / VIEWS_FOLDER / f"{each.name}.toml" for each in upstream}
    others = set((folder / VIEWS_FOLDER).glob("*.toml")) | {folder / view.query.file for view in views.values()}
    problems = [each for each in draft.problems if folder / each.file not in others - own]
    if not problems and "query" in draft.invalid_fields.get(name, ()):  # a problem of what the view reads
        problems = draft.problems
    kept = {name: views[name]} if name in views else {}
    return replace(draft, project=replace(draft.project, views=kept), problems=problems)
