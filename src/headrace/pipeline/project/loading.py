"""Loads a project from its folder: ``headrace.toml`` and one file per view in ``views/``.

``read_project`` reads every file and collects every problem that the files alone show. Use it to report problems.
``load_project`` and ``load_settings`` raise if there is a problem. Use them to run a project. None of them needs Spark;
``query.project_checks`` adds the problems that only Spark and the broker can find.
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

    :param project: has each view whose file is TOML. A field with a problem has its default, or is empty.
    :param settings: ``headrace.toml``.
    :param doubtful: by view, the fields and tables with a problem.
    """

    project: Project
    settings: TomlFile
    problems: list[Problem]
    doubtful: Mapping[str, Collection[str]]


def read_project(folder: str | Path) -> Draft:
    """
    :raises ProjectError: if there is no project in the folder.
    """
    folder, settings, project = read_settings(folder)
    problems = list(settings.problems)
    views: dict[str, ViewDefinition] = {}
    doubtful: dict[str, Collection[str]] = {}
    for path in sorted((folder / VIEWS_FOLDER).glob("*.toml")):
        view = TomlFile.read(path)
        if not view.problems:
            views[path.stem] = ViewFile(folder, view).definition()
            doubtful[path.stem] = view.doubtful
        problems += view.problems
    return Draft(replace(project, views=views), settings, problems, doubtful)


def load_project(folder: str | Path) -> Project:
    """
    :raises ProjectError: with all that is wrong.
    """
    draft = read_project(folder)
    if draft.problems:
        raise ProjectError(draft.problems)
    return draft.project


def load_settings(folder: str | Path) -> Project:
    """A project without its views: a mistake in a view's file does not keep the others from being run or looked at.

    :raises ProjectError: with all that is wrong.
    """
    _, settings, project = read_settings(folder)
    if settings.problems:
        raise ProjectError(settings.problems)
    return project
