"""Checks [export] of the views of a project: the library, the folders, and the names of columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.toml_files import Problem
from headrace.pipeline.query.view_query import ViewError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIBRARY = "deltalake"
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")


def export_problems(views: Iterable[ViewDefinition], folder: Path) -> list[Problem]:
    """
    :param folder: of the project.
    """
    exported = [(view, view.export.path) for view in sorted(views, key=lambda each: each.name) if view.export]
    if exported and find_spec(LIBRARY) is None:
        missing = f"exporting needs the library {LIBRARY}: pip install 'headrace[export]'"
        return [_problem(view, missing) for view, _ in exported]
    problems: list[Problem] = []
    first: dict[Path, str] = {}
    for view, path in exported:
        place = (folder / path).resolve()
        above = next((each for each in first if place.is_relative_to(each) or each.is_relative_to(place)), None)
        if above is not None:
            problems.append(_problem(view, f"{first[above]} is exported to {above} already: use a folder per view"))
        elif folder.resolve().is_relative_to(place):
            problems.append(_problem(view, f"{place} contains the project: export to a folder of its own"))
        elif refused := _refused(place):
            problems.append(_problem(view, refused))
        first.setdefault(place, view.name)
    return problems


def _refused(place: Path) -> str:
    from headrace.pipeline.export.delta_folder import ExportRefused, check_folder

    try:
        check_folder(place)
    except ExportRefused as error:
        return str(error)
    return ""


def check_exported_columns(definition: ViewDefinition, query: DataFrame) -> None:
    """
    :raises ViewError: if the view is exported, and a Delta table cannot have the name of a column.
    """
    if definition.export is None:
        return
    wrong = next((name for name in query.columns if _FORBIDDEN.search(name)), None)
    if wrong is not None:
        hint = "rename it with AS, without spaces and any of ,;{}()="
        raise ViewError(_problem(definition, f"a Delta table cannot have a column {wrong!r}: {hint}"))


def _problem(view: ViewDefinition, message: str) -> Problem:
    return Problem(view.file, view.line("export", "path") or view.line("export"), message)
