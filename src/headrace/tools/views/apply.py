"""``headrace views apply``: checks the files of a project, and makes new versions of changed views.

If there are problems, the command prints all of them with file and line, and changes nothing
(``query/project_checks.py``). It starts Spark and asks the broker only if a definition has changed.
"""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.project.applying import Change, ChangeKind, apply_changes, plan_changes, with_switch
from headrace.pipeline.project.loading import Draft, read_project
from headrace.pipeline.project.settings import Project
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.serving.catalog import Catalog
from headrace.pipeline.serving.database import Database
from headrace.tools.shared.commands import FAILED, Output, Table, columns
from headrace.tools.views.command import is_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECK_MASTER = "local[1]"


def apply(options: Namespace, out: Output) -> int | None:
    draft = read_project(options.project)
    if draft.problems:
        return _refuse(draft, options, out)
    project = replace(draft.project, views=with_switch(draft.project.views, options.switch))
    database = Database(project.serving_url)
    try:
        catalog = Catalog(database)
        changes = plan_changes(project.views, catalog.views(), catalog.versions())
        if any(change.needs_check for change in changes) and _refuse(draft, options, out):
            return FAILED
        if not options.dry_run:
            apply_changes(database, catalog, changes)
    finally:
        database.close()
    _show(out, changes, options, project)
    return None


def _refuse(draft: Draft, options: Namespace, out: Output) -> int | None:
    """Checks everything; prints the problems, if there are any."""
    from headrace.pipeline.query.project_checks import check_project

    problems = check_project(draft, lambda: _session(draft.project, options.master))
    show_problems(out, problems, draft.project.folder)
    return FAILED if problems else None


@contextmanager
def _session(project: Project, master: str | None) -> Iterator[SparkSession]:
    from headrace.pipeline.spark.session import open_session

    logging.getLogger("py4j").setLevel(logging.ERROR)
    session = open_session(project, master or _CHECK_MASTER, log_name="spark-apply.log", is_short=True)
    try:
        yield session
    finally:
        session.stop()


def show_problems(out: Output, problems: Iterable[Problem], folder: Path | None = None) -> None:
    """Prints a line per problem, with a path relative to the current folder."""
    found = [replace(problem, file=_shown(problem.file if folder is None else folder / problem.file))
             for problem in problems]  # fmt: skip
    if out.as_json and found:
        out.show({"problems": [asdict(problem) | {"file": str(problem.file)} for problem in found]}, "")
        return
    for problem in found:
        out.complain(str(problem))


def _shown(path: Path) -> Path:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)


def _show(out: Output, changes: list[Change], options: Namespace, project: Project) -> None:
    value = {
        "dry_run": options.dry_run,
        "changes": [
            {"view": change.view, "change": change.kind, "version": change.version, "what": change.description}
            for change in changes
        ],
    }
    rows = [(change.view, change.kind, change.description) for change in changes]
    lines = [line.rstrip() for line in columns(("VIEW", "CHANGE", "WHAT WILL HAPPEN"), rows, gap=2)]
    if not rows:
        lines = ["the project has no views; a view is a TOML file in views/"]
    out.show(value, lines, Table(("view", "change", "what will happen"), rows) if rows else None)
    if options.dry_run:
        out.note("nothing was changed (--dry-run)")
    elif any(change.kind not in (ChangeKind.UNCHANGED, ChangeKind.REMOVED) for change in changes) and not is_running(
        project
    ):
        out.note("'headrace views run' is not running: it does this when it starts")
