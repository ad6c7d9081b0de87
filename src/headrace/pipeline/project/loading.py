"""Loads a project from its folder: ``headrace.toml`` and one file per view in ``views/``.

``read_project`` reads every file and collects every problem that the files alone show. ``load_settings`` reads only
``headrace.toml``, and raises if it has a problem. Neither needs Spark; ``query.project_checks`` adds the problems that
only Spark and the broker can find.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.pipeline.project.definition import ViewDefinition
from headrace.pipeline.project.settings import Project, read_settings
from headrace.pipeline.project.toml_files import Problem, ProjectError, TomlFile
from headrace.pipeline.project.view_file import ViewFile

VIEWS_FOLDER = "views"


@dataclass(frozen=True)
class Draft:
    """A project as far as its files can be used, and all problems of the files.

    :param project: has each view whose file is valid TOML. A field with a problem has its default, or is empty.
    :param settings: the file ``headrace.toml``.
    :param invalid_fields: for each view, the fields and tables that have a problem.
    """

    project: Project
    settings: TomlFile
    problems: list[Problem]
    invalid_fields: Mapping[str, Collection[str]]


def read_project(folder: str | Path) -> Draft:
    """
    :raises ProjectError: if the folder has no ``headrace.toml``.
    """
    folder, settings, project = read_settings(folder)
    problems = list(settings.problems)
    views: dict[str, ViewDefinition] = {}
    invalid_fields: dict[str, Collection[str]] = {}
    for path in sorted((folder / VIEWS_FOLDER).glob("*.toml")):
        view = TomlFile.read(path)
        if not view.problems:
            views[path.stem] = ViewFile(folder, view).definition()
            invalid_fields[path.stem] = view.invalid_fields
        problems += view.problems
    return Draft(replace(project, views=views), settings, problems, invalid_fields)


def load_settings(folder: str | Path) -> Project:
    """A project without its views, so that a mistake in the file of one view does not block the other views.

    :raises ProjectError: with all problems.
    """
    _, settings, project = read_settings(folder)
    if settings.problems:
        raise ProjectError(settings.problems)
    return project
