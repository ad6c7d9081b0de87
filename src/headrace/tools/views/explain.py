"""``headrace views explain``: how a view is kept up to date, why, and what an event costs. It changes nothing."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from headrace.pipeline.project.loading import VIEWS_FOLDER, Draft, read_project
from headrace.pipeline.project.toml_files import did_you_mean
from headrace.tools.shared.commands import FAILED, CommandError, Output
from headrace.tools.views.command_spark import CommandSpark
from headrace.tools.views.problems import show_problems


def explain(options: Namespace, out: Output) -> int | None:
    from headrace.pipeline.maintenance.explanation import lines_of
    from headrace.pipeline.query.project_checks import check_quickly

    draft = _only(read_project(options.project), options.view)
    folder = draft.project.folder
    spark = CommandSpark(draft, options.master, out)
    quick = check_quickly(draft)
    problems = quick.problems or spark.confirmed(quick.doubts)
    explanation = None
    if not problems:
        problems, explanation = spark.explained(draft.project.views[options.view])
    if explanation is None:
        show_problems(out, problems, folder)
        return FAILED
    out.show(explanation, lines_of(explanation))
    return None


def _only(draft: Draft, name: str) -> Draft:
    """The project with this view only, so that mistakes in other views do not matter.

    :raises CommandError: if there is no such view.
    """
    folder, views = draft.project.folder, draft.project.views
    file = folder / VIEWS_FOLDER / f"{name}.toml"
    if not file.exists():
        raise CommandError(f"there is no view {name!r} in {folder / VIEWS_FOLDER}{did_you_mean(name, views)}")
    own = {file, *([folder / views[name].query.file] if name in views else [])}
    others = set((folder / VIEWS_FOLDER).glob("*.toml")) | {folder / view.query.file for view in views.values()}
    problems = [each for each in draft.problems if folder / each.file not in others - own]
    kept = {name: views[name]} if name in views else {}
    return replace(draft, project=replace(draft.project, views=kept), problems=problems)
